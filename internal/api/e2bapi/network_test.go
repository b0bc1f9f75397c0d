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

func TestAnEgressProxy(t *testing.T) {
	for name, c := range map[string]struct {
		proxy string
		want  *netpolicy.ProxyRule
		shown string
	}{
		"none":       {proxy: `null`},
		"no login":   {`{"address":"proxy.example.com:1080","tls":null}`, &netpolicy.ProxyRule{URL: "socks5://proxy.example.com:1080", Names: true}, `{"egressProxy":{"address":"proxy.example.com:1080"}}`},
		"an address": {`{"address":"[2001:db8::1]:1080"}`, &netpolicy.ProxyRule{URL: "socks5://[2001:db8::1]:1080", Names: true}, `{"egressProxy":{"address":"[2001:db8::1]:1080"}}`},
		"a secret": {`{"address":"proxy.example.com:1080","username":"u","password":"${e2b.secrets.PROXY}"}`,
			&netpolicy.ProxyRule{URL: "socks5://proxy.example.com:1080", User: "u", Secret: "PROXY", Names: true},
			`{"egressProxy":{"address":"proxy.example.com:1080","username":"u"}}`},
		"a text": {`{"address":"proxy.example.com:1080","username":"u","password":"p{x}"}`,
			&netpolicy.ProxyRule{URL: "socks5://proxy.example.com:1080", User: "u", Password: "p{x}", Names: true},
			`{"egressProxy":{"address":"proxy.example.com:1080","username":"u"}}`},
		"a user in the address": {proxy: `{"address":"u:p@proxy.example.com:1080"}`},
		"a path":                {proxy: `{"address":"proxy.example.com:1080/x"}`},
		"a port too many":       {proxy: `{"address":"proxy.example.com:99999"}`},
		"a user alone":          {proxy: `{"address":"proxy.example.com:1080","username":"u"}`},
		"text beside a secret":  {proxy: `{"address":"proxy.example.com:1080","username":"u","password":"x${e2b.secrets.PROXY}"}`},
		"a wrong name":          {proxy: `{"address":"proxy.example.com:1080","username":"u","password":"${e2b.secrets.../x}"}`},
	} {
		t.Run(name, func(t *testing.T) {
			var n networkConfig
			if err := json.Unmarshal([]byte(`{"egressProxy":`+c.proxy+`}`), &n); err != nil {
				t.Fatal(err)
			}
			spec, err := n.policy(nil)
			if fails := c.want == nil && c.proxy != "null"; (err != nil) != fails {
				t.Fatalf("%+v, %v", spec.Proxy, err)
			}
			if err == nil && (!reflect.DeepEqual(spec.Proxy, c.want) || string(n.shown()) != c.shown) {
				t.Errorf("%+v, shown %s", spec.Proxy, n.shown())
			}
		})
	}
}
