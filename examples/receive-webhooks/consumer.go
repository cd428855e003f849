// Takes messages of one queue, handles each, and acks it; on failure nacks it. Needs nothing but Go.
// Usage: OUTLAST_KEY=... go run consumer.go QUEUE
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// Longer than the wait, so that a quiet queue is not taken for a dead server.
const answerTimeout = 20 * time.Second
const pauseAfterAnError = time.Second

type message struct {
	EventID   string          `json:"event_id"`
	EventType string          `json:"event_type"`
	Attempt   int             `json:"attempt"`
	Receipt   string          `json:"receipt"`
	Payload   json.RawMessage `json:"payload"`
}

// Your work goes here. An error means that the message comes again, up to the queue's max_attempts times.
func handle(taken message) error {
	var event struct {
		Data struct {
			Object struct {
				Customer string `json:"customer"`
			} `json:"object"`
		} `json:"data"`
	}
	if err := json.Unmarshal(taken.Payload, &event); err != nil {
		return err
	}
	if event.Data.Object.Customer == "" {
		return errors.New("the invoice has no customer")
	}
	return nil
}

type queue struct {
	base, key string
	client    http.Client
}

func (queue *queue) work() error {
	var received struct {
		Messages []message `json:"messages"`
	}
	if err := queue.call("GET", "messages?wait=10s&batch=5", nil, &received); err != nil {
		return err
	}
	for _, taken := range received.Messages {
		if err := queue.workOn(taken); err != nil {
			return err
		}
	}
	return nil
}

func (queue *queue) workOn(taken message) error {
	// The receipt and not the id: if this takes longer than the visibility timeout, somebody else has the message then.
	ids := map[string][]string{"ids": {taken.Receipt}}
	if failure := handle(taken); failure != nil {
		if err := queue.call("POST", "nack", ids, nil); err != nil {
			return err
		}
		fmt.Printf("failed %s: %s\n", taken.EventID, failure)
		return nil
	}
	var answer struct {
		Acked int `json:"acked"`
	}
	if err := queue.call("POST", "ack", ids, &answer); err != nil {
		return err
	}
	ending := "done"
	if answer.Acked == 0 {
		ending = "too late"
	}
	fmt.Printf("%s %s %s\n", ending, taken.EventID, taken.EventType)
	return nil
}

func (queue *queue) call(method, path string, body, answer any) error {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	request, err := http.NewRequest(method, queue.base+"/"+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+queue.key)
	request.Header.Set("Content-Type", "application/json")
	response, err := queue.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s %s", method, path, response.Status, content)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(content, answer)
}

func main() {
	key := os.Getenv("OUTLAST_KEY")
	if len(os.Args) != 2 || key == "" {
		fmt.Fprintln(os.Stderr, "usage: OUTLAST_KEY=... go run consumer.go QUEUE")
		os.Exit(2)
	}
	url := os.Getenv("OUTLAST_URL")
	if url == "" {
		url = "http://127.0.0.1:8080"
	}
	queue := queue{base: url + "/api/queues/" + os.Args[1], key: key, client: http.Client{Timeout: answerTimeout}}
	for {
		if err := queue.work(); err != nil {
			// Nothing is lost: unacked messages come back when their visibility timeout ends.
			fmt.Fprintln(os.Stderr, "trying again:", err)
			time.Sleep(pauseAfterAnError)
		}
	}
}
