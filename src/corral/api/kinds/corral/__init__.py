"""corral's own kinds (corral.dev): what makes machines be there in an instant."""
