"""The commands of tuner as tools of the Model Context Protocol, for programs and language models."""
