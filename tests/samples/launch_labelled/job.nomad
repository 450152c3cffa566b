job "x" { env { NCCL_TIMEOUT = "3" } }
