package ssmtest

import (
	"io"
	"net/http"
	"strings"
	"sync"
)

// Bucket stands in for the objects of S3 that are reached by signed addresses of
// one region: it takes PUT, GET and DELETE. That an address is signed as S3 wants
// it is judged elsewhere, by another client; here it must be signed at all, for
// this region, and not for long.
type Bucket struct {
	region string

	mu      sync.Mutex
	objects map[string][]byte
	taken   []string
	denied  bool
}

// NewBucket is an empty one.
func NewBucket(region string) *Bucket {
	return &Bucket{region: region, objects: map[string][]byte{}}
}

// Deny has every request refused from now on.
func (b *Bucket) Deny() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.denied = true
}

// Objects are the paths of what lies in it now, and Taken of all that it was given.
func (b *Bucket) Objects() (now, taken []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for path := range b.objects {
		now = append(now, path)
	}
	return now, append([]string(nil), b.taken...)
}

func (b *Bucket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	b.mu.Lock()
	defer b.mu.Unlock()
	q := r.URL.Query()
	if err != nil || b.denied || q.Get("X-Amz-Signature") == "" || !strings.HasSuffix(q.Get("X-Amz-Credential"), "/"+b.region+"/s3/aws4_request") || q.Get("X-Amz-Expires") != "600" {
		http.Error(w, "AccessDenied "+r.URL.String(), http.StatusForbidden)
		return
	}
	object, known := b.objects[r.URL.Path]
	switch {
	case r.Method == http.MethodPut:
		b.objects[r.URL.Path] = body
		b.taken = append(b.taken, r.URL.Path)
	case r.Method == http.MethodDelete:
		delete(b.objects, r.URL.Path)
		w.WriteHeader(http.StatusNoContent)
	case !known:
		http.Error(w, "NoSuchKey", http.StatusNotFound)
	default:
		_, _ = w.Write(object) // a reader that goes away is its own affair
	}
}
