// Package signature signs and verifies artifacts in cosign's format: key pairs, payloads ("simple signing") and the
// manifest that holds them. A Policy lists the keys that an operator trusts. The package does not use the network.
//
// The cryptography is crypto/ecdsa. Private keys are encrypted by go-securesystemslib, as in cosign. The libraries of
// sigstore are not used: their packages for keys and payloads need another hundred modules, and the format is small.
// The tests compare with cosign itself (docs/inside/formats/hub.md).
//
// Everything read by this package, except private keys, was written by strangers.
package signature
