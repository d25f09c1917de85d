"""Host-device synchronisation: places where the CPU waits for the accelerator."""
