// Lets one coroutine of the event loop wait until another one, or a handler, has something for it.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace moestro::router {

class Signal {
 public:
  explicit Signal(const boost::asio::any_io_executor& executor)
      : timer_(executor, boost::asio::steady_timer::time_point::max()) {}

  // Returns at once if Notify was called since the last Wait.
  boost::asio::awaitable<void> Wait() {
    boost::system::error_code cancelled;
    if (!set_) co_await timer_.async_wait(boost::asio::redirect_error(boost::asio::use_awaitable, cancelled));
    set_ = false;
  }
  void Notify() {
    set_ = true;
    timer_.cancel();
  }

 private:
  boost::asio::steady_timer timer_;  // never expires
  bool set_ = false;
};

}  // namespace moestro::router
