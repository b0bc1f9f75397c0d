package registries

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/forkd/forkd/cmd/internal/contexts"
	"github.com/forkd/forkd/internal/images/ociimage"
)

const (
	fileName   = "registries.yaml"
	systemFile = "/etc/forkd/" + fileName

	maxFile    = 1 << 20 // bytes
	maxMirrors = 16      // of a registry
)

// Variable lists registries without TLS, separated by commas.
const Variable = "FORKD_PLAIN_HTTP"

// Settings are those of one registry.
type Settings struct {
	// Mirrors are asked before the registry by pulls, in their order: http(s)://HOST[:PORT][/PREFIX].
	Mirrors []string `yaml:"mirrors"`
	// PlainHTTP allows requests without TLS.
	PlainHTTP bool `yaml:"plain_http"`
}

// file is the form of the file.
type file struct {
	Registries map[string]Settings `yaml:"registries"`
}

// Apply sets the mirrors and the security of a pull or push from the user's file, or without one from the system's,
// and from the environment.
func Apply(p *ociimage.Pull) error {
	paths := []string{systemFile}
	user, err := contexts.Path()
	if err == nil {
		paths = []string{filepath.Join(filepath.Dir(user), fileName), systemFile}
	}
	all, err := load(paths)
	if err != nil {
		return err
	}
	host := ociimage.Host(p.Ref)
	s := all[host]
	p.Mirrors = s.Mirrors
	p.PlainHTTP = p.PlainHTTP || s.PlainHTTP || slices.Contains(strings.Split(os.Getenv(Variable), ","), host)
	return nil
}

// load reads the first file that exists.
func load(paths []string) (map[string]Settings, error) {
	for _, path := range paths {
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		all, err := parse(b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return all, nil
	}
	return nil, nil
}

// parse reads the content of a file. The keys of the result are as ociimage.Host returns them.
func parse(b []byte) (map[string]Settings, error) {
	if len(b) > maxFile {
		return nil, fmt.Errorf("has more than %d bytes", maxFile)
	}
	var f file
	err := yaml.NewDecoder(bytes.NewReader(b), yaml.Strict()).Decode(&f)
	var at yaml.Error
	switch {
	case errors.Is(err, io.EOF):
		return nil, nil
	case errors.As(err, &at) && at.GetToken() != nil && at.GetToken().Position != nil:
		return nil, fmt.Errorf("line %d: %s", at.GetToken().Position.Line, at.GetMessage())
	case err != nil:
		return nil, err
	}
	all := map[string]Settings{}
	for name, s := range f.Registries {
		host := ociimage.Host(name + "/repository")
		if host == "" || strings.ContainsAny(name, "/@") || host != name && name != "docker.io" {
			return nil, fmt.Errorf("registry %.100q: want HOST or HOST:PORT, such as docker.io", name)
		}
		if _, twice := all[host]; twice {
			return nil, fmt.Errorf("registry %s is there twice, as docker.io and index.docker.io", host)
		}
		if len(s.Mirrors) > maxMirrors {
			return nil, fmt.Errorf("registry %s has %d mirrors, want at most %d", name, len(s.Mirrors), maxMirrors)
		}
		for _, m := range s.Mirrors {
			if err := ociimage.CheckMirror(m); err != nil {
				return nil, fmt.Errorf("registry %s: %w", name, err)
			}
		}
		all[host] = s
	}
	return all, nil
}
