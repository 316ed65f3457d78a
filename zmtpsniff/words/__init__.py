"""The ground floor: words, texts and numbers of registries that every other part of zmtpsniff may use."""
