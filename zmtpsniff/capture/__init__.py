"""Where packets come from: capture files, interfaces, tshark."""
