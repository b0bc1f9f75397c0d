package e2bapi

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/forkd/forkd/internal/net/netpolicy"
)

func TestHeadersOfRules(t *testing.T) {
	for name, c := range map[string]struct {
		headers string
		want    netpolicy.HeaderRule
		fails   bool
	}{
		"a literal value": {headers: `{"X-Plain":"{a}"}`, want: netpolicy.HeaderRule{Headers: map[string]string{"X-Plain": "{a}"}}},
		"a secret of Secret.fill": {headers: `{"Authorization":"Bearer ${e2b.secrets.openai-api-key}","X":"y"}`,
			want: netpolicy.HeaderRule{Headers: map[string]string{"X": "y"},
				Secrets: map[string]string{"Authorization": "Bearer {openai-api-key}"}}},
		"two secrets in a value": {headers: `{"A":"${e2b.secrets.U}:${e2b.secrets.P}"}`,
			want: netpolicy.HeaderRule{Secrets: map[string]string{"A": "{U}:{P}"}}},
		"other braces beside a secret": {headers: `{"A":"{X} ${e2b.secrets.U}"}`, fails: true},
		"an identity token":            {headers: `{"A":"${e2b.iam.tokens.aws}"}`, fails: true},
		"an open brace":                {headers: `{"A":"${e2b.secrets.U"}`, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			var n networkConfig
			text := `{"rules":{"API.example.com":[{"transform":{"headers":` + c.headers + `}}]}}`
			if err := json.Unmarshal([]byte(text), &n); err != nil {
				t.Fatal(err)
			}
			spec, err := n.policy(nil)
			if (err != nil) != c.fails {
				t.Fatal(err)
			}
			if c.fails {
				return
			}
			c.want.Host = "api.example.com"
			if !reflect.DeepEqual(spec.Headers, []netpolicy.HeaderRule{c.want}) {
				t.Errorf("%+v, want %+v", spec.Headers, c.want)
			}
			if _, err := netpolicy.Compile(spec); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestASecretWithAWrongNameIsRefused(t *testing.T) {
	for _, secret := range []string{"", "a b", "../x"} {
		rule, err := headerRule("a.example.com", map[string]string{"A": "${e2b.secrets." + secret + "}"})
		if err != nil {
			continue
		}
		if _, err := netpolicy.Compile(netpolicy.Spec{Headers: []netpolicy.HeaderRule{rule}}); err == nil {
			t.Errorf("%q is a name", secret)
		}
	}
}
