package netproxy

import (
	"bytes"
	"crypto/x509"
	"testing"
)

// A program that trusts the certificate of an earlier process trusts the hosts of the next one.
func TestTheCertificateOutlivesTheProcess(t *testing.T) {
	seed := bytes.Repeat([]byte{7}, SeedBytes)
	ca := func(seed []byte, name string) *authority {
		a, err := newAuthority(seed, name)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	before := x509.NewCertPool()
	before.AddCert(ca(seed, "tenant a").cert)
	for what, c := range map[string]struct {
		by     *authority
		trusts bool
	}{
		"the same tenant": {ca(seed, "tenant a"), true},
		"another tenant":  {ca(seed, "tenant b"), false},
		"another daemon":  {ca(bytes.Repeat([]byte{8}, SeedBytes), "tenant a"), false},
	} {
		leaf, err := c.by.leaf("example.com")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := leaf.Leaf.Verify(x509.VerifyOptions{Roots: before, DNSName: "example.com"}); (err == nil) != c.trusts {
			t.Errorf("%s: %v, want trust: %t", what, err, c.trusts)
		}
	}
	random, other := NewInterceptor(nil, nil), NewInterceptor(nil, nil)
	if bytes.Equal(random.seed, other.seed) || len(random.seed) != SeedBytes {
		t.Error("interceptors without a seed have the same keys")
	}
}
