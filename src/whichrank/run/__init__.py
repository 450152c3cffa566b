"""The live job from outside: launch it, watch it, keep the evidence."""
