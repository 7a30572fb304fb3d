"""CDI's kinds: DataVolume, DataSource, CDIConfig, upload tokens, and how a claim is populated."""
