"""How messages between nodes become bytes and back: the registry of what may cross a link, codecs and frames."""
