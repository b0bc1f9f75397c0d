// Package registries reads the user's settings of image registries, from the file registries.yaml: mirrors, and
// registries without TLS. It sends no request and holds no credentials. The commands that pull and push use it. The
// trap: docker.io and index.docker.io are one registry.
package registries
