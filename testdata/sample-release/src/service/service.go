// Package service is the small real service of the sample release: an HTTP
// server with the health document of docs/formats.md. vs-workspace and vs-agent
// are it under two names. It imports the standard library alone and nothing of
// the product imports it.
package service

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// Main runs the service called name until SIGTERM and returns its exit code.
// It listens on the address in the variable addrVar, or on defaultAddr.
//
// Tests make it sick through the health file: VS_HEALTH_FILE, or
// <app>/state/sample-health beside the releases folder that holds the program.
// Its first word, read anew at each request, says how the service behaves:
// no file, or any other word, healthy; "sick" ok is false; "html" a web page
// with code 200; "list" a JSON list; "slow" no answer for a minute; "busy"
// healthy with one active piece of work; "crash" the process ends with 7 at a
// request, at its start, or within two seconds.
func Main(name, addrVar, defaultAddr string) int {
	logger := log.New(os.Stdout, name+": ", log.Lmsgprefix)
	crashed, crash := context.WithCancel(context.Background())
	defer crash()
	addr := os.Getenv(addrVar)
	if addr == "" {
		addr = defaultAddr
	}
	s := &server{name: name, log: logger, healthFile: healthFile(), crash: crash}

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if s.mode() == "crash" {
		logger.Printf("told to crash by %s", s.healthFile)
		return 7
	}

	l, err := net.Listen("tcp", addr)
	if err != nil {
		logger.Printf("listen on %s: %v", addr, err)
		return 1
	}
	srv := &http.Server{Handler: s.routes(), ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	logger.Printf("listening on %s, pid %d", addr, os.Getpid())

	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			logger.Printf("serve: %v", err)
			return 1
		case <-tick.C:
			if s.mode() == "crash" {
				crash()
			}
		case <-crashed.Done():
			logger.Printf("told to crash by %s", s.healthFile)
			return 7
		case <-ctx.Done():
			grace, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			err := srv.Shutdown(grace)
			cancel()
			if err != nil {
				logger.Printf("stop: %v", err)
			}
			logger.Print("stopped")
			return 0
		}
	}
}

// healthFile is VS_HEALTH_FILE, else <app>/state/sample-health where the
// program is <app>/releases/<id>/bin/<program>.
func healthFile() string {
	if f, ok := os.LookupEnv("VS_HEALTH_FILE"); ok {
		return f
	}
	exe, err := os.Executable()
	if err != nil {
		return ""
	}
	app := filepath.Dir(filepath.Dir(filepath.Dir(filepath.Dir(exe))))
	return filepath.Join(app, "state", "sample-health")
}

type server struct {
	name       string
	log        *log.Logger
	healthFile string
	crash      context.CancelFunc
	active     atomic.Int64
}

func (s *server) mode() string {
	b, err := os.ReadFile(s.healthFile)
	if err != nil {
		return ""
	}
	word, _, _ := strings.Cut(strings.TrimSpace(string(b)), " ")
	return word
}

func (s *server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/health", s.health)
	mux.HandleFunc("POST /api/work", s.work)
	mux.HandleFunc("GET /", s.frontend)
	return mux
}

func (s *server) health(w http.ResponseWriter, r *http.Request) {
	active := s.active.Load()
	ok := true
	switch s.mode() {
	case "sick":
		ok = false
	case "html":
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintln(w, "<!doctype html><title>sign in</title>")
		return
	case "list":
		answer(w, []string{"ok"})
		return
	case "slow":
		select {
		case <-r.Context().Done():
		case <-time.After(time.Minute):
		}
		return
	case "busy":
		active++
	case "crash":
		s.crash()
		<-r.Context().Done()
		return
	}
	status := "healthy"
	if !ok {
		status = "unhealthy"
	}
	answer(w, map[string]any{
		"service": s.name,
		"status":  status,
		"ok":      ok,
		"pid":     os.Getpid(),
		"drain":   map[string]any{"idle": active == 0, "active": active},
	})
}

// work is busy for the duration in the query word "for" (at most a minute), so
// that a test can watch a service drain.
func (s *server) work(w http.ResponseWriter, r *http.Request) {
	d, err := time.ParseDuration(r.URL.Query().Get("for"))
	if err != nil || d < 0 || d > time.Minute {
		http.Error(w, "for: a duration up to 1m", http.StatusBadRequest)
		return
	}
	s.active.Add(1)
	defer s.active.Add(-1)
	select {
	case <-r.Context().Done():
	case <-time.After(d):
		answer(w, map[string]any{"ok": true})
	}
}

func (s *server) frontend(w http.ResponseWriter, r *http.Request) {
	exe, err := os.Executable()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	root := filepath.Join(filepath.Dir(filepath.Dir(exe)), "frontend")
	http.FileServerFS(os.DirFS(root)).ServeHTTP(w, r)
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		return // the caller went away
	}
}
