// Package idtoken issues OpenID Connect tokens about sandboxes. It owns the signing keys, the claims, and the two
// documents with which a relying party verifies a token: the discovery document and the key set. The caller decides
// which sandbox gets a token. Package guesttoken of the engine is the only caller of Mint.
//
// The keys sign with RS256 because every relying party supports it; some clouds support no other algorithm. Beware:
// another process may rotate the keys, so each use compares the file with the keys in memory.
package idtoken
