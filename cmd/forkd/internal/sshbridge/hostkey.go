package sshbridge

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/crypto/ssh"
)

// secretBytes is the length of a user's secret.
const secretBytes = 32

// Secret returns the user's secret, from which the host keys of all sandboxes are derived. If the
// file does not exist, Secret makes it, readable for the user only. Of several processes that make
// it at the same time, one wins.
func Secret(file string) ([]byte, error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		b, err = newSecret(file)
	}
	if err != nil {
		return nil, fmt.Errorf("secret of SSH host keys: %w", err)
	}
	if len(b) != secretBytes {
		return nil, fmt.Errorf("secret of SSH host keys: %s has %d bytes, want %d: delete it", file, len(b), secretBytes)
	}
	return b, nil
}

func newSecret(file string) ([]byte, error) {
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	b := make([]byte, secretBytes)
	_, _ = rand.Read(b) // never fails
	f, err := os.CreateTemp(dir, ".ssh-secret-*")
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(b)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return nil, err
	}
	if err := os.Link(f.Name(), file); errors.Is(err, fs.ErrExist) {
		return os.ReadFile(file)
	} else if err != nil {
		return nil, err
	}
	return b, nil
}

// HostKey returns the host key of a sandbox. It depends on the secret and the sandbox's id only, so
// a fork never has the key of its parent, and every bridge to a sandbox has the same key.
func HostKey(secret []byte, id string) (ssh.Signer, error) {
	seed, err := hkdf.Key(sha256.New, secret, nil, "forkd ssh host key of "+id, ed25519.SeedSize)
	if err != nil {
		return nil, err
	}
	return ssh.NewSignerFromKey(ed25519.NewKeyFromSeed(seed))
}

// KnownHost returns a line of known_hosts(5) for a host key.
func KnownHost(host string, key ssh.PublicKey) string {
	return fmt.Sprintf("%s %s %s\n", host, key.Type(), base64.StdEncoding.EncodeToString(key.Marshal()))
}
