"""zmtpsniff as a capture interface of Wireshark: its extcap protocol, and messages as exported PDUs."""
