package idempotency

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestARequestIsCarriedOutOnce(t *testing.T) {
	var c Cache[string]
	now := time.Unix(1000, 0)
	begin := func(caller, key, body string) (*string, func(*string), error) {
		return c.Begin(caller, key, []byte(body), now)
	}
	_, end, err := begin("me", "k-1", "body")
	if err != nil || end == nil {
		t.Fatal(err)
	}
	if _, _, err := begin("me", "k-1", "body"); !errors.Is(err, ErrProgress) {
		t.Errorf("under way: %v", err)
	}
	if _, _, err := begin("me", "k-1", "other"); !errors.Is(err, ErrMismatch) {
		t.Errorf("another body: %v", err)
	}
	if _, other, err := begin("you", "k-1", "other"); err != nil || other == nil {
		t.Errorf("another caller: %v", err)
	}
	answer := "made"
	end(&answer)
	if got, again, err := begin("me", "k-1", "body"); err != nil || again != nil || got == nil || *got != "made" {
		t.Errorf("after it: %v, %v", got, err)
	}
	_, end, _ = begin("me", "k-2", "body")
	end(nil)
	if _, again, err := begin("me", "k-2", "other"); err != nil || again == nil {
		t.Errorf("after a failure: %v", err)
	}
	for _, key := range []string{"", "A", "a b", "a\n"} {
		if _, _, err := begin("me", key, ""); !errors.Is(err, ErrKey) {
			t.Errorf("%q: %v", key, err)
		}
	}
}

func TestWhatIsRememberedIsBounded(t *testing.T) {
	var c Cache[int]
	one := 1
	for i := range most + 10 {
		_, end, err := c.Begin(fmt.Sprint("me", i%20), fmt.Sprint(i), nil, time.Unix(int64(i), 0))
		if err != nil {
			t.Fatal(err)
		}
		end(&one)
	}
	if n := len(c.entries); n > most {
		t.Errorf("%d are remembered", n)
	}
	if got, _, _ := c.Begin(fmt.Sprint("me", (most+9)%20), fmt.Sprint(most+9), nil, time.Unix(most, 0)); got == nil {
		t.Error("the newest was forgotten")
	}
}

// A caller that sends many keys loses its own answers, and never another caller's.
func TestOneCallerKeepsToItsShare(t *testing.T) {
	var c Cache[int]
	one := 1
	put := func(caller, key string, at int64) {
		t.Helper()
		_, end, err := c.Begin(caller, key, nil, time.Unix(at, 0))
		if err != nil {
			t.Fatal(err)
		}
		end(&one)
	}
	put("quiet", "k", 0)
	for i := range most + 1 {
		put("loud", fmt.Sprint(i), int64(i+1))
	}
	if got, _, _ := c.Begin("quiet", "k", nil, time.Unix(most, 0)); got == nil {
		t.Error("another caller's answer was forgotten")
	}
	if n := len(c.entries); n != share+1 {
		t.Errorf("%d are remembered", n)
	}
	for i := range share {
		if _, _, err := c.Begin("busy", fmt.Sprint(i), nil, time.Unix(0, 0)); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := c.Begin("busy", "more", nil, time.Unix(0, 0)); err != ErrFull {
		t.Errorf("got %v", err)
	}
}

// Callers that fill the cache together lose their own answers, and never those of a caller with
// few.
func TestCallersThatFillTheCacheForgetTheirOwn(t *testing.T) {
	var c Cache[int]
	one := 1
	put := func(caller, key string, at int64) {
		t.Helper()
		_, end, err := c.Begin(caller, key, nil, time.Unix(at, 0))
		if err != nil {
			t.Fatal(err)
		}
		end(&one)
	}
	for i := range 50 {
		put("quiet", fmt.Sprint(i), 0)
	}
	const callers = most/share + 2
	for i := range most + 300 {
		put(fmt.Sprint("loud", i%callers), fmt.Sprint(i), int64(i+1))
	}
	for i := range 50 {
		if got, _, _ := c.Begin("quiet", fmt.Sprint(i), nil, time.Unix(most, 0)); got == nil {
			t.Fatalf("answer %d of the quiet caller was forgotten", i)
		}
	}
	if n := len(c.entries); n > most {
		t.Errorf("%d are remembered", n)
	}
}
