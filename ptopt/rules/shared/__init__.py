"""Facts that several families of rules ask for: data loaders, moves to a device, places, removals."""
