package identity

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/ssh"
)

// rsaBits is the size of a new RSA host key, as in ssh-keygen.
const rsaBits = 3072

// renewHostKeys replaces the guest's SSH host keys. A new RSA key takes seconds on a slow guest, so
// an RSA key is removed if sshd has another key.
func (a *Applier) renewHostKeys(host string) (done bool, err error) {
	names, _ := filepath.Glob(a.path("/etc/ssh/ssh_host_*_key")) // fails only on a bad pattern
	other := false
	for _, name := range names {
		kind := keyKind(name)
		other = other || kind == "ed25519" || kind == "ecdsa"
	}
	var errs []error
	for _, name := range names {
		st, err := os.Lstat(name)
		if err != nil || !st.Mode().IsRegular() {
			continue
		}
		kind := keyKind(name)
		switch {
		case kind == "rsa" && other, kind == "dsa":
			err = removeKey(name)
		case kind == "ed25519", kind == "ecdsa", kind == "rsa":
			err = renewKey(name, kind, "root@"+host)
		default:
			continue // other kinds are left to a hook of the image
		}
		if err != nil {
			errs = append(errs, err)
		}
		done = true
	}
	return done, errors.Join(errs...)
}

// keyKind returns the type in the file name ssh_host_TYPE_key.
func keyKind(name string) string {
	return strings.TrimSuffix(strings.TrimPrefix(filepath.Base(name), "ssh_host_"), "_key")
}

// removeKey removes a key and its public half.
func removeKey(name string) error {
	if err := os.Remove(name); err != nil {
		return fmt.Errorf("remove host key: %w", err)
	}
	if err := os.Remove(name + ".pub"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove host key: %w", err)
	}
	return nil
}

// renewKey writes a new key of a kind into the existing files, so they keep owner and mode.
func renewKey(name, kind, comment string) error {
	key, err := newKey(kind)
	if err != nil {
		return fmt.Errorf("make host key %s: %w", name, err)
	}
	block, err := ssh.MarshalPrivateKey(key, comment)
	if err != nil {
		return fmt.Errorf("encode host key %s: %w", name, err)
	}
	public, err := ssh.NewPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("encode host key %s: %w", name, err)
	}
	line := strings.TrimSuffix(string(ssh.MarshalAuthorizedKey(public)), "\n") + " " + comment + "\n"
	if err := write(name, pem.EncodeToMemory(block)); err != nil {
		return err
	}
	if st, err := os.Lstat(name + ".pub"); err == nil && !st.Mode().IsRegular() {
		return nil
	}
	return write(name+".pub", []byte(line))
}

func newKey(kind string) (crypto.Signer, error) {
	switch kind {
	case "ecdsa":
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "rsa":
		return rsa.GenerateKey(rand.Reader, rsaBits)
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	return key, err
}
