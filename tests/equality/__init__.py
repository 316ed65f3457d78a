"""Records of this version of zmtpsniff against those of another one: ``python -m tests.equality REVISION``."""
