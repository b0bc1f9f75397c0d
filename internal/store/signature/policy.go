package signature

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml"
)

// Policy lists the keys that may sign for repositories. A snapshot without a fitting signature is refused.
//
// The repository is the one in the signed statement, and not the one that a client names: a client could name any.
// For the same reason a policy has no rule for unsigned repositories.
type Policy struct {
	Rules []Rule
}

// Rule lists the keys for some repositories.
type Rule struct {
	// Repositories are names, such as registry.example.com/team/app. A name that ends in /* stands for all
	// repositories below it, and * for all.
	Repositories []string
	// Keys are the trusted keys.
	Keys []*PublicKey
	// Files are the files of Keys.
	Files []string
}

const (
	maxPolicy = 1 << 20 // bytes of a file
	maxRules  = 1000    // and keys of a rule
)

// policyFile is the text of a policy.
type policyFile struct {
	Signatures []struct {
		Repositories []string `yaml:"repositories"`
		Keys         []string `yaml:"keys"`
	} `yaml:"signatures"`
}

// ReadPolicy reads a policy and its keys. Names of keys are relative to the policy's folder.
func ReadPolicy(path string) (*Policy, error) {
	b, err := readFile(path, maxPolicy)
	if err != nil {
		return nil, err
	}
	p, err := parsePolicy(b, func(name string) (*PublicKey, error) {
		if !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(path), name)
		}
		return ReadPublic(name)
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// ReadPublic reads a public key from a file.
func ReadPublic(path string) (*PublicKey, error) {
	b, err := readFile(path, MaxKeyBytes)
	if err != nil {
		return nil, err
	}
	k, err := ParsePublic(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return k, nil
}

func readFile(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("%s has more than %d bytes", path, limit)
	}
	return b, err
}

func parsePolicy(b []byte, read func(string) (*PublicKey, error)) (*Policy, error) {
	var f policyFile
	d := yaml.NewDecoder(bytes.NewReader(b), yaml.Strict())
	if err := d.Decode(&f); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(f.Signatures) == 0 || len(f.Signatures) > maxRules {
		return nil, fmt.Errorf("signatures has %d rules, want 1 to %d", len(f.Signatures), maxRules)
	}
	p := &Policy{}
	for i, r := range f.Signatures {
		if len(r.Repositories) == 0 || len(r.Keys) == 0 || len(r.Keys) > maxRules {
			return nil, fmt.Errorf("rule %d: want repositories and 1 to %d keys", i+1, maxRules)
		}
		rule := Rule{Repositories: r.Repositories, Files: r.Keys}
		for _, name := range r.Repositories {
			if err := checkPattern(name); err != nil {
				return nil, fmt.Errorf("rule %d: %w", i+1, err)
			}
		}
		for _, name := range r.Keys {
			k, err := read(name)
			if err != nil {
				return nil, fmt.Errorf("rule %d: %w", i+1, err)
			}
			rule.Keys = append(rule.Keys, k)
		}
		p.Rules = append(p.Rules, rule)
	}
	return p, nil
}

func checkPattern(name string) error {
	fixed := strings.TrimSuffix(name, "/*")
	if name == "*" {
		return nil
	}
	if fixed == "" || strings.ContainsAny(fixed, "*?[]@ \t\n") || strings.Contains(fixed, "://") {
		return fmt.Errorf("repository %.100q: want HOST/NAME, HOST/NAME/* or *", name)
	}
	return nil
}

// covers reports whether a rule is for a repository.
func (r *Rule) covers(repository string) bool {
	for _, name := range r.Repositories {
		below, many := strings.CutSuffix(name, "*")
		if name == repository || many && strings.HasPrefix(repository, below) {
			return true
		}
	}
	return false
}

// Check returns ErrRefused unless an artifact has a signature that the policy trusts.
func (p *Policy) Check(all []Signature, digest string) error {
	_, err := first(all, digest, func(s Signature) error { return p.trusted(s, digest) })
	return err
}

func (p *Policy) trusted(s Signature, digest string) error {
	var reason error
	for i := range p.Rules {
		for _, k := range p.Rules[i].Keys {
			repository, err := k.Verify(s, digest)
			if err == nil && p.Rules[i].covers(repository) {
				return nil
			}
			if err == nil {
				err = fmt.Errorf("its key is not trusted for the repository %.200q", repository)
			}
			if reason == nil || errors.Is(reason, errOther) {
				reason = err
			}
		}
	}
	return reason
}
