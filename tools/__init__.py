"""What building, testing and measuring lean on; nothing that users install."""
