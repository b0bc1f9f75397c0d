package netpolicy

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits of rules that sign.
const (
	maxSignRules = 10
	maxBuckets   = 20
	maxPrefix    = 512
	maxKey       = 4096 // session tokens have up to 2 KiB
)

var (
	regionName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)
	bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
)

// adminBuckets are the first parts of paths below which MinIO and Ceph are administered, with the same signature.
var adminBuckets = []string{"admin", "minio"}

// Signed is a compiled rule for one host.
type Signed struct {
	// Rule is the rule.
	Rule SignRule
	// HostBucket is the bucket that the host's name begins with, or empty.
	HostBucket string
	// Missing is why requests must be refused, or empty.
	Missing string
}

// Sign returns the rule that signs requests to a canonical name, or nil. A host with a rule is not thereby allowed.
func (p *Policy) Sign(name string) *Signed { return p.signs[name] }

// Intercepts reports whether the policy changes requests in TLS. The guest must then trust a certificate.
func (s Spec) Intercepts() bool { return len(s.Headers) > 0 || len(s.Sign) > 0 }

func compileSign(rules []SignRule, headers headerTable) (map[string]*Signed, error) {
	if len(rules) > maxSignRules {
		return nil, fmt.Errorf("sign: %d hosts are too many: at most %d", len(rules), maxSignRules)
	}
	t := map[string]*Signed{}
	for i, r := range rules {
		if strings.HasPrefix(r.Host, "*") {
			return nil, fmt.Errorf("sign[%d]: host %q: requests are signed for one host, without *", i, r.Host)
		}
		name, err := CanonicalName(r.Host)
		if err != nil {
			return nil, fmt.Errorf("sign[%d]: host: %w", i, err)
		}
		if err := r.check(); err != nil {
			return nil, fmt.Errorf("sign[%d] for %s: %w", i, name, err)
		}
		for host, bucket := range r.hosts(name) {
			if t[host] != nil || headers[host] != nil {
				return nil, fmt.Errorf("sign[%d] for %s: %s has a rule in sign or headers already", i, name, host)
			}
			t[host] = &Signed{Rule: r, HostBucket: bucket, Missing: r.missing()}
		}
	}
	return t, nil
}

// hosts returns the host names of a rule, each with the bucket that it begins with. Certificates cover no buckets with
// dots, and names that are too long are no hosts.
func (r SignRule) hosts(name string) map[string]string {
	all := map[string]string{name: ""}
	for _, b := range r.Buckets {
		if host, err := CanonicalName(b.Name + "." + name); err == nil && !strings.Contains(b.Name, ".") {
			all[host] = b.Name
		}
	}
	return all
}

func (r SignRule) missing() string {
	if r.Missing == "" && (r.Keys == nil || r.Keys.AccessKeyID == "" || r.Keys.SecretAccessKey == "") {
		return "the secrets with the keys are not resolved"
	}
	return r.Missing
}

func (r SignRule) check() error {
	if !regionName.MatchString(r.Region) {
		return fmt.Errorf("region: %.64q is no region: want letters a-z, digits and dashes, such as us-east-1", r.Region)
	}
	if r.Missing == "" || r.Secrets != (SignSecrets{}) {
		if err := r.Secrets.check(); err != nil {
			return fmt.Errorf("secrets: %w", err)
		}
	}
	if len(r.Buckets) == 0 || len(r.Buckets) > maxBuckets {
		return fmt.Errorf("buckets: there are %d, want 1 to %d", len(r.Buckets), maxBuckets)
	}
	for i, b := range r.Buckets {
		if err := b.check(); err != nil {
			return fmt.Errorf("buckets[%d]: %w", i, err)
		}
		if slices.Contains(r.Buckets[:i], b) {
			return fmt.Errorf("buckets[%d]: %s is there twice", i, b.Name)
		}
	}
	return nil
}

// check never puts a text into an error: a user may have taken the key itself for the name of a secret.
func (s SignSecrets) check() error {
	for _, n := range []struct{ field, name string }{
		{"access_key_id", s.AccessKeyID}, {"secret_access_key", s.SecretAccessKey}, {"session_token", s.SessionToken},
	} {
		if n.field == "session_token" && n.name == "" {
			continue
		}
		if !secretName.MatchString(n.name) {
			return fmt.Errorf("%s: want the name of a secret, not its value: see forkd secret set", n.field)
		}
	}
	return nil
}

func (b BucketRule) check() error {
	switch {
	case !bucketName.MatchString(b.Name) || strings.Contains(b.Name, ".."):
		return fmt.Errorf("name: %.64q is no bucket's name", b.Name)
	case slices.Contains(adminBuckets, b.Name):
		return fmt.Errorf("name: %s is refused: storage servers have their administration there", b.Name)
	case b.Prefix == "":
		return nil
	case len(b.Prefix) > maxPrefix || !utf8.ValidString(b.Prefix):
		return fmt.Errorf("prefix: want at most %d bytes of UTF-8", maxPrefix)
	case strings.ContainsFunc(b.Prefix, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' }):
		return errors.New("prefix: it has a control character or a backslash")
	case !strings.HasSuffix(b.Prefix, "/"):
		return fmt.Errorf("prefix: %.64q does not end in a slash", b.Prefix)
	}
	for _, part := range strings.Split(strings.TrimSuffix(b.Prefix, "/"), "/") {
		if part == "" || part == "." || part == ".." {
			return fmt.Errorf("prefix: %.64q has an empty part, or a part . or ..", b.Prefix)
		}
	}
	return nil
}

// resolved returns the rule with its keys.
func (r SignRule) resolved(value func(string) (string, error)) SignRule {
	if r.Missing != "" {
		return r
	}
	keys := SignKeys{}
	var failed error
	for _, k := range []struct {
		name string
		into *string
	}{
		{r.Secrets.AccessKeyID, &keys.AccessKeyID}, {r.Secrets.SecretAccessKey, &keys.SecretAccessKey},
		{r.Secrets.SessionToken, &keys.SessionToken},
	} {
		if k.name == "" {
			continue
		}
		v, err := value(k.name)
		if err == nil && !isKey(v) {
			err = fmt.Errorf("the secret %s is no key: want 1 to %d letters, digits and signs without blanks", k.name, maxKey)
		}
		*k.into, failed = v, errors.Join(failed, err)
	}
	if failed != nil {
		r.Keys, r.Missing = nil, strings.ReplaceAll(failed.Error(), "\n", "; ")
		return r
	}
	r.Keys = &keys
	return r
}

// isKey reports whether a text can be in a header and in a scope of a signature.
func isKey(v string) bool {
	other := func(r rune) bool { return r <= ' ' || r > '~' || r == ',' }
	return v != "" && len(v) <= maxKey && !strings.ContainsFunc(v, other)
}

// withoutReference returns the rule for another owner, whose secrets it must not name. Requests are refused then.
func (r SignRule) withoutReference() SignRule {
	r.Secrets, r.Keys = SignSecrets{}, nil
	r.Missing = "they belong to another tenant: set a policy with secrets of yours"
	return r
}

// changed returns the rules, each changed.
func changed(rules []SignRule, change func(SignRule) SignRule) []SignRule {
	if rules == nil {
		return nil
	}
	out := make([]SignRule, len(rules))
	for i, r := range rules {
		out[i] = change(r)
	}
	return out
}
