# Takes messages of one queue, handles each, and acks it; on failure nacks it. Needs nothing but Ruby.
# Usage: OUTLAST_KEY=... ruby consumer.rb QUEUE

require "json"
require "net/http"

# Longer than the wait, so that a quiet queue is not taken for a dead server.
ANSWER_TIMEOUT_SECONDS = 20
PAUSE_AFTER_AN_ERROR_SECONDS = 1

# Your work goes here. An exception means that the message comes again, up to the queue's max_attempts times.
def handle(message)
  invoice = message["payload"]["data"]["object"]
  raise "the invoice has no customer" unless invoice["customer"]
end

class Consumer
  def initialize(base, key)
    @base = base
    @key = key
  end

  def run
    loop do
      call(Net::HTTP::Get, "messages?wait=10s&batch=5")["messages"].each { |message| work_on(message) }
    rescue StandardError => error
      # Nothing is lost: unacked messages come back when their visibility timeout ends.
      warn "trying again: #{error.message}"
      sleep PAUSE_AFTER_AN_ERROR_SECONDS
    end
  end

  private

  def work_on(message)
    begin
      handle(message)
    rescue StandardError => error
      call(Net::HTTP::Post, "nack", { ids: [message["receipt"]] })
      puts "failed #{message["event_id"]}: #{error.message}"
      return
    end
    # The receipt and not the id: if this took longer than the visibility timeout, somebody else has the message now.
    acked = call(Net::HTTP::Post, "ack", { ids: [message["receipt"]] })["acked"]
    puts "#{acked.zero? ? "too late" : "done"} #{message["event_id"]} #{message["event_type"]}"
  end

  def call(verb, path, body = nil)
    uri = URI("#{@base}/#{path}")
    request = verb.new(uri, { "authorization" => "Bearer #{@key}", "content-type" => "application/json" })
    request.body = JSON.generate(body) if body
    options = { use_ssl: uri.scheme == "https", read_timeout: ANSWER_TIMEOUT_SECONDS, max_retries: 0 }
    answer = Net::HTTP.start(uri.host, uri.port, options) { |connection| connection.request(request) }
    raise "#{path}: #{answer.code} #{answer.body}" unless answer.is_a?(Net::HTTPOK)

    JSON.parse(answer.body)
  end
end

key = ENV["OUTLAST_KEY"]
abort "usage: OUTLAST_KEY=... ruby consumer.rb QUEUE" if ARGV.length != 1 || key.nil?
$stdout.sync = true
url = ENV.fetch("OUTLAST_URL", "http://127.0.0.1:8080")
Consumer.new("#{url}/api/queues/#{ARGV.first}", key).run
