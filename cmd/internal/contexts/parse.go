package contexts

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/parser"
)

// version is the version of the file's format.
const version = 1

// maxFile limits the file, in bytes.
const maxFile = 1 << 20

// fileSpec is the file's form in YAML.
type fileSpec struct {
	Version  int                    `yaml:"version"`
	Current  string                 `yaml:"current,omitempty"`
	Contexts map[string]contextSpec `yaml:"contexts,omitempty"`
}

type contextSpec struct {
	Description string `yaml:"description,omitempty"`
	URL         string `yaml:"url,omitempty"`
	Machine     string `yaml:"machine,omitempty"`
	Host        bool   `yaml:"host,omitempty"`
	TokenFile   string `yaml:"token_file,omitempty"`
	Token       string `yaml:"token,omitempty"`
	Fingerprint string `yaml:"tls_fingerprint,omitempty"`
	Cert        string `yaml:"tls_client_cert,omitempty"`
	Key         string `yaml:"tls_client_key,omitempty"`
}

// Parse reads the file's content. Unknown keys are errors with their line.
func Parse(content []byte) (File, error) {
	if len(content) > maxFile {
		return File{}, fmt.Errorf("is over %d bytes", maxFile)
	}
	spec, err := decode(content)
	if err != nil {
		return File{}, err
	}
	f := File{Current: spec.Current, Contexts: map[string]Context{}}
	for name, c := range spec.Contexts {
		if err := CheckName(name); err != nil {
			return File{}, err
		}
		f.Contexts[name] = Context(c)
		if err := f.Contexts[name].check(); err != nil {
			return File{}, fmt.Errorf("context %s: %w", name, err)
		}
	}
	if f.Current == Default {
		f.Current = ""
	}
	if _, ok := f.Contexts[f.Current]; f.Current != "" && !ok {
		return File{}, fmt.Errorf("current: context %.80q does not exist", f.Current)
	}
	return f, nil
}

// decode reads the YAML, which must be one document.
func decode(content []byte) (spec fileSpec, err error) {
	tree, err := parser.ParseBytes(content, 0)
	if err != nil {
		return spec, located(err)
	}
	if len(tree.Docs) > 1 {
		return spec, errors.New("want one YAML document")
	}
	dec := yaml.NewDecoder(strings.NewReader(string(content)), yaml.DisallowUnknownField())
	switch err := dec.Decode(&spec); {
	case errors.Is(err, io.EOF), err == nil && len(strings.TrimSpace(string(content))) == 0:
		return spec, nil
	case err != nil:
		return spec, located(err)
	case spec.Version != version:
		return spec, fmt.Errorf("version is %d, want %d", spec.Version, version)
	}
	return spec, nil
}

// located returns an error of the YAML package in one line.
func located(err error) error {
	var at yaml.Error
	if !errors.As(err, &at) {
		return err
	}
	if tok := at.GetToken(); tok != nil && tok.Position != nil {
		return fmt.Errorf("line %d: %s", tok.Position.Line, at.GetMessage())
	}
	return errors.New(at.GetMessage())
}

// Format returns the file's content.
func (f File) Format() ([]byte, error) {
	spec := fileSpec{Version: version, Current: f.Current, Contexts: map[string]contextSpec{}}
	for name, c := range f.Contexts {
		spec.Contexts[name] = contextSpec(c)
	}
	return yaml.Marshal(spec)
}
