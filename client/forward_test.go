package client_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/testing/bothways"
)

func TestForward(t *testing.T) {
	daemon := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Forkd-Error", "not_found")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(w, "%s %s %s %q", r.Method, r.URL, r.Header.Get("Authorization"), r.Header.Get("X-Api-Key"))
	}))
	defer daemon.Close()
	send := func(url string) *httptest.ResponseRecorder {
		c, err := client.New(client.Options{URL: url, Token: "mine"})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		r := httptest.NewRequest("GET", "http://127.0.0.1:1/v1/a%2Fb?q=1", nil)
		r.Header.Set("Authorization", "Bearer theirs")
		r.Header.Set("X-Api-Key", "theirs")
		w := httptest.NewRecorder()
		client.Forward(c).ServeHTTP(w, r)
		return w
	}
	w := send(daemon.URL)
	if w.Code != http.StatusNotFound || w.Body.String() != `GET /v1/a%2Fb?q=1 Bearer mine ""` || w.Header().Get("Forkd-Error") != "not_found" {
		t.Errorf("%d %s %v", w.Code, w.Body, w.Header())
	}
	w = send("unix:///nowhere/forkd.sock")
	if w.Code != http.StatusBadGateway || !strings.Contains(w.Body.String(), "unix:///nowhere/forkd.sock does not answer") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestForwardAnswersBeforeTheEndOfARequest(t *testing.T) {
	daemon := httptest.NewServer(bothways.Echo)
	defer daemon.Close()
	c, err := client.New(client.Options{URL: daemon.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	front := httptest.NewServer(client.Forward(c))
	defer front.Close()
	bothways.Talk(t, front.Client(), front.URL, nil)
}
