// Package signed finds and attaches the signatures of artifacts in registries. A signature is stored as cosign does:
// a manifest under the tag sha256-HEX.sig, which is also a referrer of the artifact (OCI 1.1). The cryptography is in
// package store/signature.
//
// Registries and their lists are not trusted: the numbers and sizes of what is read are limited.
package signed
