"""Models: any OpenAI-compatible endpoint, and the scripted model."""
