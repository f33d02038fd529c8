"""One module family per provider: its adapter, its wire format, its errors. Nothing outside knows their shapes."""
