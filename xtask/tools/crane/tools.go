//go:build tools

// Package tools pins crane, which pushes images to a registry (and can be one, for tests).
package tools

import (
	_ "github.com/google/go-containerregistry/cmd/crane"
)
