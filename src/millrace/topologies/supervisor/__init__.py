"""The supervisor: keeps a driver process running for every submitted topology. Storm's Nimbus."""
