package endpoint

import (
	"testing"

	"github.com/forkd/forkd/client"
)

// What the environment says of TLS is for a daemon at https:// alone, and a flag comes before it.
func TestWhatTLSIsSpokenWith(t *testing.T) {
	t.Setenv("FORKD_TLS_FINGERPRINT", "pin")
	t.Setenv("FORKD_TLS_CLIENT_CERT", "cert")
	t.Setenv("FORKD_TLS_CLIENT_KEY", "key")
	for name, row := range map[string]struct {
		flags Flags
		url   string
		want  client.Options
	}{
		"the environment":   {Flags{}, "https://x", client.Options{Fingerprint: "pin", ClientCert: "cert", ClientKey: "key"}},
		"without TLS":       {Flags{}, "unix:///x", client.Options{}},
		"flags":             {Flags{Fingerprint: "p", Cert: "c", Key: "k"}, "https://x", client.Options{Fingerprint: "p", ClientCert: "c", ClientKey: "k"}},
		"one flag":          {Flags{Cert: "c"}, "https://x", client.Options{Fingerprint: "pin", ClientCert: "c"}},
		"flags without TLS": {Flags{Cert: "c", Key: "k"}, "http://x", client.Options{ClientCert: "c", ClientKey: "k"}},
	} {
		got := client.Options{URL: row.url}
		row.want.URL = row.url
		if row.flags.secure(&got); got.Fingerprint != row.want.Fingerprint || got.ClientCert != row.want.ClientCert ||
			got.ClientKey != row.want.ClientKey {
			t.Errorf("%s: %+v, want %+v", name, got, row.want)
		}
	}
}
