package network

import (
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
)

// secret is a value set by the host. It must not occur in any guest.
const secret = "Bearer c0ffee-5ec2e7-of-the-host"

// injecting returns a policy with the secret for hosts.
func injecting(value string, hosts ...string) api.NetworkPolicy {
	p := api.NetworkPolicy{Allow: []string{"example.com", "other.example.com", "impostor.test", web}}
	for _, host := range hosts {
		p.Headers = append(p.Headers, api.HeaderRule{Host: host, Headers: map[string]string{"Authorization": value}})
	}
	return p
}

// A guest's programs make normal requests, and the host named in the policy receives the secret. No
// other host and no process in the guest receives it.
func TestHeadersAreSetForTheNamedHostAlone(t *testing.T) {
	w := shared(t)
	holder := w.fork(t, parentTag, injecting(secret, "example.com", "impostor.test")).ID
	w.run(t, holder, `trusted = system()`)
	t.Run("curl and requests", func(t *testing.T) { w.programsWithASecret(t, holder) })
	t.Run("the guest trusts the certificate", func(t *testing.T) {
		if by := value[string](t, w, holder, `issuer("example.com", trusted)`); !strings.Contains(by, "forkd") {
			t.Errorf("example.com is vouched for by %q", by)
		}
	})
	t.Run("another host is itself", func(t *testing.T) {
		w.wantText(t, holder, `fetch("https://other.example.com/?by=other", Authorization="mine")`, "another host")
		w.far.wantRequest(t, "other", "another host", "mine")
		w.wantRefused(t, holder, `issuer("other.example.com", trusted)`, "SSLCertVerificationError")
	})
	t.Run("nothing is set without TLS", func(t *testing.T) {
		w.wantText(t, holder, `fetch("http://example.com/?by=plain", Authorization="mine")`, "the web")
		w.far.wantRequest(t, "plain", "the web", "mine")
	})
	t.Run("a request for another host than the hello's", func(t *testing.T) {
		w.wantText(t, holder, `handshake("example.com", 443, "example.com", "other.example.com", "out").split("\r\n")[0]`,
			"HTTP/1.1 421 Misdirected Request")
		w.far.wantNoRequest(t, "out")
		w.wantText(t, holder, `handshake("other.example.com", 443, "other.example.com", "example.com", "in")[-12:]`,
			"another host")
		w.far.wantRequest(t, "in", "another host") // the secret is for another host
	})
	t.Run("a host that is not who it says", func(t *testing.T) { w.impostor(t, holder) })
	t.Run("nobody tells the secret", func(t *testing.T) { w.untold(t, holder) })
}

// programsWithASecret checks that a program's own Authorization headers are overwritten, even two
// of them. curl uses HTTP/2 and requests HTTP/1.1.
func (w *world) programsWithASecret(t *testing.T, id string) {
	for program, tc := range map[string]struct{ script, want string }{
		"curl": {`curl -sS -H "Authorization: Bearer mine" -H "authorization: Bearer mine-too"` +
			` -w " %{http_version}\n" "https://example.com/?by=curl"` +
			` --next -sS -H "Host: other.example.com" -o /dev/null -w "%{http_code}" "https://example.com/?by=misled"`,
			"the web 2\n421"},
		"requests": {`python3 -c 'import requests; print(requests.get("https://example.com/?by=requests",` +
			` headers={"Authorization": "Bearer mine"}).text)'`, "the web"},
	} {
		r, err := w.Client.Exec(t.Context(), id,
			api.ExecRequest{Args: []string{"sh", "-c", tc.script}, TimeoutSecs: patience.Seconds()})
		if err != nil || r.ExitCode != 0 || strings.TrimSpace(r.Stdout) != tc.want {
			t.Errorf("%s: %+v, %v, want %q", program, r, err, tc.want)
		}
		w.far.wantRequest(t, program, "the web", secret)
	}
	w.far.wantNoRequest(t, "misled")
}

// trusts waits until a guest has received the certificate for example.com, and loads it as
// `trusted`.
func (w *world) trusts(t *testing.T, id string) {
	t.Helper()
	eventually(t, "certificate in "+id, func() bool {
		w.run(t, id, `trusted = system()`)
		return w.try(t, id, `issuer("example.com", trusted)`).Error == ""
	})
}

// impostor connects to a host with a certificate for other names. The guest sees a reset, and can
// read the reason.
func (w *world) impostor(t *testing.T, id string) {
	w.wantRefused(t, id, `fetch("https://impostor.test/?by=impostor", trusted)`, cut...)
	w.far.wantNoRequest(t, "impostor")
	for where, text := range map[string]string{
		"the guest's page": value[string](t, w, id, `fetch("http://192.0.0.1/denied")`),
		"the API":          w.refusals(t, id),
	} {
		if !strings.Contains(text, "impostor.test") || !strings.Contains(text, "not impostor.test") {
			t.Errorf("%s does not say what is wrong with impostor.test: %q", where, text)
		}
	}
}

// untold checks that neither the guest's processes nor the host reveal the secret.
func (w *world) untold(t *testing.T, id string) {
	r, err := w.Client.Exec(t.Context(), id, api.ExecRequest{User: "root", TimeoutSecs: patience.Seconds(),
		Args: []string{"sh", "-c", `cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr "\0" "\n"`}})
	if err != nil || !strings.Contains(r.Stdout, "SSL_CERT_FILE=") {
		t.Errorf("processes of the guest: %+v, %v", r, err)
	}
	now, err := w.Client.Network(t.Context(), id)
	if err != nil || len(now.Effective.Headers) != 2 || now.Effective.Headers[0].Headers["Authorization"] != "***" {
		t.Errorf("the API tells %+v, %v", now, err)
	}
	policy := w.cli(t, "net", "policy", id)
	if !strings.Contains(policy, "Authorization for example.com") {
		t.Errorf("forkd net policy tells %q", policy)
	}
	for where, text := range map[string]string{
		"a process in the guest": r.Stdout,
		"forkd net policy":       policy + w.cli(t, "net", "policy", id, "--json"),
		"forkd inspect":          w.cli(t, "inspect", id, "--json"),
		"forkd net log":          w.cli(t, "net", "log", id),
		"forkd net ps":           w.cli(t, "net", "ps", id, "--json"),
	} {
		if strings.Contains(text, secret) {
			t.Errorf("%s tells the secret: %q", where, text)
		}
	}
	// The policy as returned can be sent back, and the host keeps the secret.
	w.set(t, id, api.SetNetworkRequest{Network: &now.Network})
	w.wantText(t, id, `fetch("https://example.com/?by=again", trusted)`, "the web")
	w.far.wantRequest(t, "again", "the web", secret)
}
