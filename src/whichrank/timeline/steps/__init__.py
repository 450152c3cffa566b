"""Where the time of training steps goes: profiles reduced to steps, lined up across ranks, and replayed."""
