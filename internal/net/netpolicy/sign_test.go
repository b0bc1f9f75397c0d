package netpolicy

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

const signFile = `
default: deny
allow: ["s3.example.com:443", "*.s3.example.com:443"]
sign:
- host: S3.example.com
  region: eu-central-1
  secrets: {access_key_id: S3_ID, secret_access_key: S3_KEY, session_token: S3_TOKEN}
  buckets:
  - {name: models, read_only: true}
  - {name: work, prefix: agent-7/}
  - {name: with.dots}
`

func signSpec(t *testing.T) Spec {
	t.Helper()
	s, err := ParseFile("policy.yaml", []byte(signFile))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestBucketsHaveHostsOfTheirOwn(t *testing.T) {
	p, err := Compile(signSpec(t))
	if err != nil {
		t.Fatal(err)
	}
	for host, bucket := range map[string]string{"s3.example.com": "", "models.s3.example.com": "models", "work.s3.example.com": "work"} {
		if s := p.Sign(host); s == nil || s.HostBucket != bucket || s.Missing == "" {
			t.Errorf("%s: %+v", host, s)
		}
	}
	for _, host := range []string{"other.s3.example.com", "with.dots.s3.example.com", "example.com", "s3.example.com.evil.net"} {
		if s := p.Sign(host); s != nil {
			t.Errorf("%s is signed", host)
		}
	}
}

func TestKeysOfASignRuleAreResolvedAndNeverInherited(t *testing.T) {
	spec := signSpec(t)
	values := map[string]string{"S3_ID": "AKIDOFATENANT", "S3_KEY": "the/secret+key", "S3_TOKEN": "the-token"}
	value := func(name string) (string, error) {
		if v, ok := values[name]; ok {
			return v, nil
		}
		return "", errors.New("secret " + name + " not found")
	}
	full := spec.WithSecrets(value)
	p, err := Compile(full)
	if err != nil || p.Sign("s3.example.com").Missing != "" || p.Sign("s3.example.com").Rule.Keys.SecretAccessKey != "the/secret+key" {
		t.Fatal(err, p.Sign("s3.example.com"))
	}
	if spec.Sign[0].Keys != nil {
		t.Error("the policy with the references was changed")
	}
	for _, out := range []Spec{full.ReferencesOnly(), full.WithoutReferences()} {
		b, _ := json.Marshal(out)
		for _, v := range values {
			if strings.Contains(string(b), v) {
				t.Errorf("%s is in %s", v, b)
			}
		}
		p, err := Compile(out)
		if err != nil || p.Sign("models.s3.example.com").Missing == "" {
			t.Error("requests are not refused", err)
		}
	}
	other := full.WithoutReferences()
	if other.Refers() || !strings.Contains(other.Sign[0].Missing, "another tenant") {
		t.Errorf("%+v", other.Sign[0])
	}
	for name, v := range map[string]string{"S3_KEY": "", "S3_ID": "two words", "S3_TOKEN": "line\nend"} {
		was := values[name]
		if values[name] = v; v == "" {
			delete(values, name)
		}
		r := spec.WithSecrets(value).Sign[0]
		if r.Keys != nil || !strings.Contains(r.Missing, name) || strings.Contains(r.Missing, was) || v != "" && strings.Contains(r.Missing, v) {
			t.Errorf("%s: %+v", name, r)
		}
		values[name] = was
	}
}

func TestMistakesInSignRulesAreFound(t *testing.T) {
	for name, tc := range map[string]struct{ from, to, want string }{
		"any host":        {"S3.example.com", `"*.example.com"`, "without *"},
		"no region":       {"eu-central-1", `"EU/1"`, "region"},
		"a key":           {"S3_KEY", "wJalrXUtnFEMI/K7MDENG", "want the name of a secret"},
		"no secret":       {"access_key_id: S3_ID, ", "", "access_key_id"},
		"prefix":          {"agent-7/", "agent-7", "does not end in a slash"},
		"dots":            {"agent-7/", "agent-7/../", ".."},
		"administration":  {"name: models", "name: minio", "administration"},
		"bucket":          {"name: models", "name: Models", "no bucket's name"},
		"twice":           {"name: with.dots", "name: models, read_only: true", "twice"},
		"unknown key":     {"read_only: true", "readonly: true", "readonly"},
		"keys":            {"region: eu-central-1", "region: eu-central-1\n  keys: {access_key_id: a}", "keys"},
		"headers as well": {"sign:", "headers: [{host: models.s3.example.com, headers: {A: b}}]\nsign:", "already"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(signFile, tc.from, tc.to, 1)
			_, err := ParseFile("policy.yaml", []byte(text))
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "wJalr") {
				t.Error(err)
			}
		})
	}
}
