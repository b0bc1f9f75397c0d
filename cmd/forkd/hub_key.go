//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/internal/images/ociimage"
	"github.com/forkd/forkd/internal/images/signed"
	"github.com/forkd/forkd/internal/leaf/undo"
	"github.com/forkd/forkd/internal/store/signature"
)

// passwordVariable names the variable with the password of a private key. COSIGN_PASSWORD is read as well.
const passwordVariable = "FORKD_KEY_PASSWORD" // #nosec G101 -- the name of a variable

// madeKey is the result of hub generate-key.
type madeKey struct {
	Private     string `json:"private"` // file
	Public      string `json:"public"`  // file
	Fingerprint string `json:"fingerprint"`
}

func newHubKeyCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "generate-key [NAME]",
		Short: "Make a key pair for signing snapshots",
		Long: "Make a key pair for `forkd push --sign-key`: NAME.key, encrypted with a password, and NAME.pub. The\n" +
			"default for NAME is forkd. Existing files stay. The password is asked for in a terminal, or read\n" +
			"from " + passwordVariable + " or COSIGN_PASSWORD. The files have cosign's format, and cosign's keys\n" +
			"work as well.",
		Example: "  forkd hub generate-key team",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			name := "forkd"
			if len(args) > 0 {
				name = args[0]
			}
			return generateKey(a, name)
		},
	}
}

func (a *hubs) signKey(path string) (*signature.PrivateKey, error) {
	if path == "" {
		return nil, nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, exit.UsageError{Err: fmt.Errorf("--sign-key: %w", err)}
	}
	password, err := keyPassword(a.app, "Password of "+path, false)
	if err != nil {
		return nil, err
	}
	key, err := signature.ParsePrivate(b, password)
	if err != nil {
		return nil, fmt.Errorf("--sign-key %s: %w", path, err)
	}
	return key, nil
}

// requiredKey reads the key that has to have signed a snapshot. It returns nil without a file.
func requiredKey(path string) (*signature.PublicKey, error) {
	if path == "" {
		return nil, nil
	}
	key, err := signature.ReadPublic(path)
	if err != nil {
		return nil, exit.UsageError{Err: fmt.Errorf("--require-signature: %w", err)}
	}
	return key, nil
}

// signatures finds the signatures of a snapshot, for the policy of the daemon's operator, and requires one of key. If
// key is nil, the daemon decides.
func (a *hubs) signatures(ctx context.Context, repo *ociimage.Repository, digest string,
	key *signature.PublicKey) ([]signature.Signature, error) {
	all, err := signed.Find(ctx, repo, digest)
	if key == nil {
		if err != nil {
			a.app.Note("signatures could not be read: %v", err)
		}
		return all, nil
	}
	if err == nil {
		err = signature.Require(key, all, digest)
	}
	if err != nil {
		return nil, fmt.Errorf("pull %s: %w", repo.Name, err)
	}
	return all, nil
}

// keyPassword returns the password of a private key.
func keyPassword(a *app, prompt string, fresh bool) ([]byte, error) {
	for _, name := range []string{passwordVariable, "COSIGN_PASSWORD"} {
		if text, set := os.LookupEnv(name); set {
			return []byte(text), nil
		}
	}
	fd := int(os.Stdin.Fd())
	if !term.IsTerminal(fd) {
		return nil, exit.UsageError{Err: fmt.Errorf("the key's password cannot be asked for without a terminal: "+
			"set %s (it may be empty)", passwordVariable)}
	}
	first, err := ask(a, fd, prompt)
	if err != nil || !fresh {
		return first, err
	}
	second, err := ask(a, fd, "The same again")
	if err == nil && !bytes.Equal(first, second) {
		err = errors.New("the passwords differ")
	}
	return first, err
}

func ask(a *app, fd int, prompt string) ([]byte, error) {
	fmt.Fprintf(a.Err, "%s: ", prompt)
	b, err := term.ReadPassword(fd)
	fmt.Fprintln(a.Err)
	return b, err
}

func generateKey(a *app, name string) (err error) {
	out := madeKey{Private: name + ".key", Public: name + ".pub"}
	for _, path := range []string{out.Private, out.Public} {
		if _, err := os.Lstat(path); err == nil {
			return exit.UsageError{Err: fmt.Errorf("%s exists: choose another name", path)}
		}
	}
	password, err := keyPassword(a, "Password for "+out.Private, true)
	if err != nil {
		return err
	}
	private, public, err := signature.Generate(password)
	if err != nil {
		return err
	}
	key, err := signature.ParsePublic(public)
	if err != nil {
		return err
	}
	out.Fingerprint = key.Fingerprint
	var made undo.Stack
	defer made.OnError(&err)
	for _, f := range []struct {
		path string
		text []byte
		mode os.FileMode
	}{{out.Private, private, 0o600}, {out.Public, public, 0o644}} {
		if err := writeNew(f.path, f.text, f.mode); err != nil {
			return err
		}
		made.Push(func() { _ = os.Remove(f.path) })
	}
	if a.JSON {
		return a.Value(out)
	}
	a.Note("keep %s secret; %s verifies", filepath.Base(out.Private), filepath.Base(out.Public))
	return a.Line("%s", out.Public)
}

// writeNew writes a file that does not exist.
func writeNew(path string, text []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}
