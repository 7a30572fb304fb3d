"""Discovery, OpenAPI, health and other paths beside resources; CustomResourceDefinitions."""
