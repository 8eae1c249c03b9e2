"""Python client of steprail."""
