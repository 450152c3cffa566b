"""`preflight`: are these hosts fit to start?"""
