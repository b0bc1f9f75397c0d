package netpolicy

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// HostName is the name by which guests reach the host's ports opened by the operator.
const HostName = "host.forkd.internal"

// toASCII maps names as browsers and resolvers do. Underscores are allowed in names of the DNS,
// although not in host names. CanonicalName checks the rest itself.
var toASCII = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.Transitional(false), idna.StrictDomainName(false))

// CanonicalName returns a name in the form in which rules, facts and questions are compared: ASCII,
// lowercase, without the final dot. It returns an error if the name is impossible in the DNS, for
// example an address.
func CanonicalName(name string) (string, error) {
	n := strings.TrimSuffix(name, ".")
	if n == "" {
		return "", errors.New("has no name")
	}
	if !utf8.ValidString(n) {
		return "", fmt.Errorf("%q is not UTF-8", name)
	}
	if !isASCII(n) || strings.Contains(strings.ToLower(n), "xn--") {
		var err error
		if n, err = toASCII.ToASCII(n); err != nil {
			return "", fmt.Errorf("%q is no valid internationalised name", name)
		}
		n = strings.TrimSuffix(n, ".")
	}
	n = strings.ToLower(n)
	if len(n) > 253 {
		return "", errors.New("the name is longer than 253 characters")
	}
	for label := range strings.SplitSeq(n, ".") {
		if err := checkLabel(label, name); err != nil {
			return "", err
		}
	}
	if looksLikeIPv4(n) {
		return "", fmt.Errorf("%q is no name: its last part is a number", name)
	}
	return n, nil
}

func checkLabel(label, name string) error {
	switch {
	case label == "":
		return fmt.Errorf("%q has an empty part between dots", name)
	case len(label) > 63:
		return fmt.Errorf("a part of the name is longer than 63 characters; it begins with %.20q", label)
	case strings.Contains(label, "*"):
		return fmt.Errorf("%q: * may only be the whole first part, as in *.example.com", name)
	case label[0] == '-' || label[len(label)-1] == '-':
		return fmt.Errorf("%q: a part of a name does not begin or end with a hyphen", name)
	}
	for i := range len(label) {
		c := label[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return fmt.Errorf("%q has a character that no host name has: %q", name, c)
		}
	}
	return nil
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// looksLikeIPv4 reports whether programs may take a host for an IPv4 address, even a malformed one:
// its last part is a number, decimal or hexadecimal. Some programs take 127.1 and 0x7f.1 for
// 127.0.0.1.
func looksLikeIPv4(host string) bool {
	host = strings.TrimSuffix(host, ".")
	last := strings.ToLower(host[strings.LastIndexByte(host, '.')+1:])
	digits, isHex := strings.CutPrefix(last, "0x")
	if isHex && strings.Trim(digits, "0123456789abcdef") == "" {
		return true
	}
	return last != "" && strings.Trim(last, "0123456789") == ""
}
