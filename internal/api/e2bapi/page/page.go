// Package page splits lists into pages and reads the parameters of lists. A token names the last
// entry of a page, so that entries which are added or removed meanwhile cause no repeated or
// skipped entries.
package page

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Most is the default and the largest number of entries in a page.
const Most = 100

// Limit reads the number of entries for a page.
func Limit(s string) (int, error) {
	if s == "" {
		return Most, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > Most {
		return 0, fmt.Errorf("want 1 to %d", Most)
	}
	return n, nil
}

// Key is the position of an entry in a list: its time, and its ID among entries with the same time.
type Key struct {
	At time.Time // creation or start, in UTC if read from a token
	ID string    // sandbox's ID or snapshot's tag; orders equal times
}

// Compare orders keys, oldest first.
func (k Key) Compare(other Key) int {
	return cmp.Or(k.At.Compare(other.At), cmp.Compare(k.ID, other.ID))
}

// Token returns the key in the clients' form.
func (k Key) Token() string {
	text := strconv.FormatInt(k.At.Unix(), 10) + "." + strconv.Itoa(k.At.Nanosecond()) + "." + k.ID
	return base64.RawURLEncoding.EncodeToString([]byte(text))
}

var errToken = errors.New("it is not one of this server's")

// maxToken is longer than every token this package makes, in bytes.
const maxToken = 512

// Parse reads a token.
func Parse(token string) (Key, error) {
	b, err := base64.RawURLEncoding.DecodeString(token)
	parts := strings.SplitN(string(b), ".", 3)
	if err != nil || len(token) > maxToken || len(parts) != 3 {
		return Key{}, errToken
	}
	sec, err1 := strconv.ParseInt(parts[0], 10, 64)
	ns, err2 := strconv.ParseUint(parts[1], 10, 30)
	if err1 != nil || err2 != nil || ns >= 1e9 {
		return Key{}, errToken
	}
	return Key{time.Unix(sec, int64(ns)).UTC(), parts[2]}, nil
}

// Of returns the page of a sorted list after a token, and the token of the next page, or "" if
// there is none. oldest means that the oldest entry comes first.
func Of[T any](all []T, token string, limit int, key func(T) Key, oldest bool) (some []T, next string, err error) {
	begin := 0
	if token != "" {
		after, err := Parse(token)
		if err != nil {
			return nil, "", err
		}
		for begin < len(all) && !follows(key(all[begin]), after, oldest) {
			begin++
		}
	}
	some = all[begin:]
	if len(some) <= limit {
		return some, "", nil
	}
	some = some[:limit]
	return some, key(some[limit-1]).Token(), nil
}

func follows(k, after Key, oldest bool) bool {
	if oldest {
		return k.Compare(after) > 0
	}
	return k.Compare(after) < 0
}

// Metadata parses pairs that clients escape twice. The query has been unescaped only once.
func Metadata(s string) (map[string]string, error) {
	if s == "" {
		return nil, nil
	}
	s, err := url.QueryUnescape(s)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for pair := range strings.SplitSeq(s, "&") {
		k, v, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, fmt.Errorf("%.80q is no key=value", pair)
		}
		if k, err = url.QueryUnescape(k); err != nil {
			return nil, err
		}
		if v, err = url.QueryUnescape(v); err != nil {
			return nil, err
		}
		out[k] = v
	}
	return out, nil
}
