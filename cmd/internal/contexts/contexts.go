package contexts

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/hints"
)

// Default is the name of the search for a daemon without a context. It is not in the file.
const Default = "default"

// maxToken limits a token file, in bytes.
const maxToken = 64 << 10

// Context names a daemon. Exactly one of URL, Machine and Host is set.
type Context struct {
	Description string
	URL         string // of the daemon
	Machine     string // name of the machine with the daemon
	Host        bool   // the daemon of this host
	TokenFile   string // path of a file with the token
	Token       string // excludes TokenFile
	Fingerprint string // of the daemon's certificate, SHA-256
	Cert, Key   string // files of the client's certificate
}

// Place describes the daemon's place.
func (c Context) Place() string {
	switch {
	case c.Host:
		return "this host"
	case c.Machine != "":
		return "machine " + c.Machine
	}
	return c.URL
}

// ReadToken returns the token. It is empty if the context has none.
func (c Context) ReadToken() (string, error) {
	if c.TokenFile == "" {
		return c.Token, nil
	}
	f, err := os.Open(c.TokenFile)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxToken+1))
	if err != nil {
		return "", fmt.Errorf("read %s: %w", c.TokenFile, err)
	}
	token := strings.TrimSpace(string(b))
	if token == "" || len(b) > maxToken || strings.ContainsAny(token, "\r\n") {
		return "", fmt.Errorf("%s: want one line with a token", c.TokenFile)
	}
	return token, nil
}

// check reports a context that names no daemon.
func (c Context) check() error {
	places := 0
	for _, set := range []bool{c.URL != "", c.Machine != "", c.Host} {
		if set {
			places++
		}
	}
	secure := cmp.Or(c.Fingerprint, c.Cert, c.Key) != ""
	switch {
	case places != 1:
		return errors.New("want one of url, machine and host")
	case c.Token != "" && c.TokenFile != "":
		return errors.New("token and token_file exclude each other")
	case secure && !strings.HasPrefix(c.URL, "https:"):
		return errors.New("tls_fingerprint, tls_client_cert and tls_client_key need a url of https")
	case (c.Cert == "") != (c.Key == ""):
		return errors.New("tls_client_cert and tls_client_key go together")
	}
	return nil
}

// File is the content of the file.
type File struct {
	Current  string // name of the context in use; if empty, none is
	Contexts map[string]Context
}

var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// CheckName reports a name that no context can have.
func CheckName(name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("context name %.80q: want 1 to 63 letters, digits, '.', '-' or '_', a letter or digit first", name)
	}
	if name == Default {
		return fmt.Errorf("context %s is built in: it cannot be created or removed", Default)
	}
	return nil
}

// Names returns the names of the contexts, sorted.
func (f File) Names() []string { return slices.Sorted(maps.Keys(f.Contexts)) }

// Get returns a context.
func (f File) Get(name string) (Context, error) {
	c, ok := f.Contexts[name]
	if !ok {
		return c, hints.With(&client.Error{Code: api.CodeNotFound, Message: fmt.Sprintf("context %.80s not found", name)},
			"`forkd context ls` lists the contexts")
	}
	return c, nil
}

// Create adds a context.
func (f *File) Create(name string, c Context) error {
	if _, ok := f.Contexts[name]; ok {
		return hints.With(&client.Error{Code: api.CodeConflict, Message: fmt.Sprintf("context %s already exists", name)},
			"`forkd context rm "+name+"` removes it")
	}
	if f.Contexts == nil {
		f.Contexts = map[string]Context{}
	}
	f.Contexts[name] = c
	return nil
}

// Use makes a context the current one.
func (f *File) Use(name string) error {
	if name == Default {
		f.Current = ""
		return nil
	}
	if _, err := f.Get(name); err != nil {
		return err
	}
	f.Current = name
	return nil
}

// Remove removes a context. Without force, the current one is a conflict.
func (f *File) Remove(name string, force bool) error {
	if _, err := f.Get(name); err != nil {
		return err
	}
	if f.Current == name {
		if !force {
			return hints.With(&client.Error{Code: api.CodeConflict, Message: fmt.Sprintf("context %s is in use", name)},
				"choose another one with `forkd context use`, or remove it with --force")
		}
		f.Current = ""
	}
	delete(f.Contexts, name)
	return nil
}
