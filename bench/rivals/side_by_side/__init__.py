"""Installs, starts, loads and compares job queue servers. One module per noun; `main` connects them."""
