package nodes

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// Entry is one node of a list.
type Entry struct {
	// Name is the node's name, as in `forkd serve --node-name`.
	Name string `yaml:"name"`
	// UID is the node's UID, as in `forkd serve --node-uid`. It is empty for a daemon without that flag.
	UID string `yaml:"uid"`
	// URL is the address of the node's daemon, http or https.
	URL string `yaml:"url"`
	// TokenFile has the key that reads GET /v1/node. It is read again before each use.
	TokenFile string `yaml:"token-file"`
	// CAFile has the certificates that sign the node's own. If it is empty, the system's are used.
	CAFile string `yaml:"ca-file"`
	// ServerName is the name in the node's certificate. If it is empty, the URL's host is.
	ServerName string `yaml:"server-name"`
}

// Key returns the key in the ids of the node's sandboxes.
func (e Entry) Key() sandbox.NodeKey {
	if e.UID != "" {
		return sandbox.NodeKeyOf(e.UID)
	}
	return sandbox.NodeKeyOf(e.Name)
}

// Limits of a list.
const (
	maxFile  = 1 << 20
	maxNodes = 1000
)

var (
	aName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)
	aUID  = regexp.MustCompile(`^[A-Za-z0-9-]{0,64}$`)
)

// Parse reads a list of nodes in YAML. It refuses two nodes with the same name or key: a sandbox's id would not
// identify its node.
func Parse(text []byte) ([]Entry, error) {
	if len(text) > maxFile {
		return nil, fmt.Errorf("the list has %d bytes, want at most %d", len(text), maxFile)
	}
	list, err := decode(text)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, errors.New("the list is empty, want at least one node")
	}
	if len(list) > maxNodes {
		return nil, fmt.Errorf("the list has %d nodes, want at most %d", len(list), maxNodes)
	}
	return list, Check(list)
}

// decode turns a panic of the library into an error: it has some for invalid tags.
func decode(text []byte) (list []Entry, err error) {
	defer func() {
		if p := recover(); p != nil {
			list, err = nil, errors.New("the list is no valid YAML")
		}
	}()
	if err := yaml.UnmarshalWithOptions(text, &list, yaml.Strict()); err != nil {
		return nil, errors.New(yaml.FormatError(err, false, false))
	}
	return list, nil
}

// Check returns an error for invalid entries, and for two nodes with the same name or key.
func Check(list []Entry) error {
	var wrong []error
	names, keys := map[string]bool{}, map[sandbox.NodeKey]string{}
	for i, e := range list {
		if err := e.check(); err != nil {
			wrong = append(wrong, fmt.Errorf("node %d (%s): %w", i+1, sandbox.Clip(e.Name), err))
			continue
		}
		if names[e.Name] {
			wrong = append(wrong, fmt.Errorf("the name %s stands twice in the list", e.Name))
			continue
		}
		names[e.Name] = true
		if other, taken := keys[e.Key()]; taken {
			wrong = append(wrong, fmt.Errorf("nodes %s and %s have the same key %s: give one of them another UID, "+
				"and restart its daemon with it", other, e.Name, e.Key()))
			continue
		}
		keys[e.Key()] = e.Name
	}
	return errors.Join(wrong...)
}

func (e Entry) check() error {
	u, err := url.Parse(e.URL)
	switch {
	case !aName.MatchString(e.Name):
		return errors.New("name: want lowercase letters, digits, dots and dashes")
	case !aUID.MatchString(e.UID):
		return errors.New("uid: want at most 64 letters, digits and dashes")
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil ||
		strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("url %q: want http://HOST:PORT or https://HOST:PORT", sandbox.Clip(e.URL))
	case e.TokenFile == "":
		return errors.New("token-file is missing: it has a key of the operator with the scope read")
	}
	return nil
}
