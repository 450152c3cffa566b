"""Faults at launch and rendezvous."""
