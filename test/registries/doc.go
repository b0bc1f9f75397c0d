// Package registries tests snapshots in registries with programs that this project did not write: Debian's
// docker-registry, go-containerregistry's registry, skopeo and cosign. scripts/deps.sh and scripts/registries.sh provide
// the programs. VMs are not needed: a snapshot is made of a few layers.
package registries
