#include "services/cli/make_model/training_corpus.h"

namespace moestro {

// Changing a byte changes the tokenizer, and with it the token ids that golden files hold.
std::string_view TrainingCorpus() {
  return R"corpus(The lighthouse keeper wrote a line in the log every evening, whether or not anything had happened. "Wind from the
north-west, two ships, no fog," she would write, and then she would close the book and make tea. In forty years she
had filled thirty-one volumes. When people asked her why she did it, she said that a record is a kind of promise: the
sea may forget, but the paper will not.

One winter a young engineer came to replace the lamp with a machine. He measured the stairs, counted the mirrors, and
asked how much oil was burned in a night. She answered every question from the books. He was surprised to find that
the numbers were better than his own estimates, because they had been taken when nobody needed them. "You should
publish these," he told her. "Who would read them?" she asked. "I would," said the engineer, and he stayed a week
longer than he had planned.

How does a large language model answer a question? The text is first cut into tokens, which are pieces of words. Each
token becomes a vector of numbers. The vectors pass through many layers, and in every layer each token looks at the
tokens before it and then visits a few experts, small networks that are chosen by a router. At the end the model gives
a score to every token that could come next. One of them is taken, it is added to the text, and the whole process
begins again. What is the most expensive part? Reading the weights from memory. That is why the order of the work
matters more than the amount of the work: if the weights of an expert are read once and used for many tokens, the
machine is busy; if they are read again and again for a single token, the machine waits.

Please explain the difference between throughput and latency. Throughput is how much work is done in a second; latency
is how long one piece of work takes. A train carries more people than a car, but the car leaves at once. Which of the
two is better depends on what you want: a short answer now, or a hundred answers by tomorrow morning.

Write a short story about a robot that learns to paint. Summarize the following article in three sentences. Translate
this paragraph into French, German and Spanish. What is the capital of Australia? Give me a recipe for bread with
flour, water, salt and yeast. Tell me a joke about computers. Could you help me to find the bug in this program? Thank
you very much; that is exactly what I was looking for. I'm sorry, I don't know the answer to that. It's not clear what
you mean, but here's what I think you're asking. They've already finished, we'll see, he'd rather wait, she isn't sure.

Bread. Mix 500 g of strong flour with 350 ml of warm water, 10 g of salt and 5 g of dry yeast. Knead the dough for ten
minutes until it is smooth and elastic. Let it rest under a cloth for 90 minutes, shape it into a loaf, and let it rest
again for 45 minutes. Bake it at 230 degrees for 15 minutes, then at 200 degrees for another 25 minutes. The crust
should be dark and the loaf should sound hollow when you knock on the bottom. Let it cool before you cut it, if you can.

In 1969, 1984, 1999, 2007 and 2024 the world changed a little. 3.14159265 is close to pi; 2.71828 is close to e. The
speed of light is 299792458 metres per second. 1,000,000 divided by 8 is 125,000. 12 + 30 = 42, 7 * 6 = 42, 100% of
42 is 42. The meeting is on 2025-03-17 at 09:30, room B-204, and ends at 11:45. Call +49 30 1234567 or write to
support@example.com; the page is at https://www.example.com/docs/index.html?page=2&lang=en#top.

# Notes

- The first item of the list
- The second item, with `code` and **bold** text
  - A nested item
1. Install the package
2. Run the tests
3. Read the output

| name | value | unit |
|------|-------|------|
| size | 128   | MiB  |
| time | 0.25  | s    |

```python
import math
from collections import defaultdict


def primes(limit):
    """Return all prime numbers below limit."""
    sieve = [True] * limit
    for number in range(2, int(math.sqrt(limit)) + 1):
        if sieve[number]:
            for multiple in range(number * number, limit, number):
                sieve[multiple] = False
    return [index for index in range(2, limit) if sieve[index]]


class Counter:
    def __init__(self, name, start=0):
        self.name = name
        self.value = start

    def increment(self, amount=1):
        if amount < 0:
            raise ValueError(f"amount must not be negative: {amount}")
        self.value += amount
        return self.value


if __name__ == "__main__":
    words = defaultdict(int)
    for word in open("input.txt").read().split():
        words[word.lower()] += 1
    print(sorted(words.items(), key=lambda item: -item[1])[:10])
```

```cpp
#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

namespace example {

template <typename T>
T Sum(const std::vector<T>& values) {
  T total{};
  for (const T& value : values) total += value;
  return total;
}

struct Point {
  double x = 0.0;
  double y = 0.0;
  bool operator==(const Point& other) const { return x == other.x && y == other.y; }
};

}  // namespace example

int main(int argc, char** argv) {
  std::vector<int> numbers = {5, 3, 8, 1, 9, 2};
  std::sort(numbers.begin(), numbers.end());
  for (size_t i = 0; i < numbers.size(); ++i) {
    std::cout << i << ": " << numbers[i] << "\n";
  }
  return example::Sum(numbers) > 0 ? 0 : 1;
}
```

```javascript
const fetchUser = async (id) => {
  const response = await fetch(`/api/users/${id}`, { headers: { "Content-Type": "application/json" } });
  if (!response.ok) {
    throw new Error("request failed: " + response.status);
  }
  return response.json();
};
```

{"model": "demo", "messages": [{"role": "system", "content": "You are a helpful assistant."}, {"role": "user",
"content": "Hello, how are you today?"}], "temperature": 0.7, "max_tokens": 256, "stream": true, "stop": null}

SELECT name, COUNT(*) AS total FROM orders WHERE created_at >= '2024-01-01' GROUP BY name ORDER BY total DESC LIMIT 10;

$ git clone https://example.com/project.git && cd project && make -j8 && ./run --port 8080 --verbose 2>&1 | tail -n 20

今天天气很好，我们去公园散步吧。你好，请问你叫什么名字？我想学习中文，因为我喜欢中国文化。大语言模型可以回答问题、写文章、翻译句子，
也可以写程序。专家混合模型由很多专家组成，每个词只使用其中几个专家，所以计算量比较小，但是需要很大的内存。请解释一下什么是人工智能。
人工智能是计算机科学的一个分支，它研究如何让机器完成需要智能的工作。学而时习之，不亦说乎？

これは日本語の文章です。東京は日本の首都で、とても大きな都市です。明日は雨が降るかもしれませんので、傘を持って行ってください。
コンピューターはデータを処理する機械です。ありがとうございます。おはようございます。

한국어로 간단한 문장을 써 주세요. 오늘은 날씨가 맑고 바람이 조금 붑니다. 감사합니다. 안녕하세요.

Привет, как дела? Сегодня хорошая погода, и мы идём гулять в парк. Большая модель отвечает на вопросы.

Ünter den Straßen fließt ein Fluß; die Bäume blühen, und der Käse schmeckt gut. L'été dernier, à Noël, où est le
garçon ? El niño comió una manzana mañana; ¿dónde está la biblioteca? Η γλώσσα είναι μεγάλη. שלום עולם. مرحبا بالعالم.

Emoji: 😀 😂 🎉 🚀 👍🏽 ❤️ ✅. Symbols: → ← ≤ ≥ ≠ ± × ÷ ∞ √ € £ ¥ § © ™ … – — “quotes” ‘single’.

The harbour town lay between two hills. On market days the farmers came down with apples, onions, potatoes and cheese,
and the fishermen came up with herring, crabs and stories. Nobody believed the stories, but everybody listened. The
oldest fisherman said that he had once seen a whale as long as the street; the farmers answered that they had onions of
the same size at home. Then they laughed, drank coffee together and talked about the weather, the price of flour and the
new railway. The children played under the tables, between the baskets and the dogs.

A computer program is a list of instructions. The processor reads an instruction, does what it says, and goes on to the
next. Some instructions read a value from memory, some write a value to memory, some add or multiply, and some decide
which instruction comes next. A function is a named list of instructions that can be used again and again with different
values. A good program is short, clear and correct; a correct program does what its description says, and a clear program
makes it easy to see that it does. Testing can show that there is an error, but it cannot show that there is none.

Memory is organised in levels. The registers of a processor are small and fast; the caches are larger and slower; the main
memory is larger still, and slower still. When many values have to be read, the bandwidth between memory and processor
limits the speed, and it does not help to compute faster. Graphics processors have a fast memory of their own, but it is
too small for the largest models. That is why such models are kept in the main memory, and why only the parts that are
needed are sent over the bus. The difference between a good and a bad schedule can be a factor of ten.

Question: Why is the sky blue? Answer: Because the air scatters short waves of light more strongly than long waves, and
blue light has shorter waves than red light. Question: Why is the sunset red? Answer: Because in the evening the light
travels a longer way through the air, and most of the blue light has been scattered before it reaches your eyes. Question:
How many legs does a spider have? Answer: Eight. Question: What is the largest planet of the solar system? Answer: Jupiter.
Question: Who wrote Faust? Answer: Goethe. Question: What is the square root of 144? Answer: 12, because 12 * 12 = 144.

Dear Ms. Johnson, thank you for your letter of 14 February. We have checked your account and found that the payment was
received on 12 February, so the reminder was sent by mistake. We are sorry for the trouble, and we have corrected the
record. If you have any further questions, please contact us at any time. Best regards, your customer service team.

The following steps are necessary before the system can be used. First, download the package and check its signature.
Second, create a directory for the data and make sure that there is enough free space. Third, edit the configuration file:
set the name of the server, the number of the port, and the maximum number of connections. Fourth, start the service and
look at the log. If the log contains an error message, read the message; it names the file and the line, and it tells you
what to do. Finally, open the address in your browser and follow the instructions on the screen.

```python
def fibonacci(count):
    """Return the first count Fibonacci numbers."""
    result = [0, 1]
    while len(result) < count:
        result.append(result[-1] + result[-2])
    return result[:count]


def read_config(path, default=None):
    values = dict(default or {})
    with open(path, encoding="utf-8") as config_file:
        for line in config_file:
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            key, _, value = line.partition("=")
            values[key.strip()] = value.strip()
    return values


class Stack:
    def __init__(self):
        self.items = []

    def push(self, item):
        self.items.append(item)

    def pop(self):
        if not self.items:
            raise IndexError("the stack is empty")
        return self.items.pop()

    def __len__(self):
        return len(self.items)
```

```rust
fn main() {
    let numbers = vec![1, 2, 3, 4, 5];
    let total: i32 = numbers.iter().map(|x| x * x).sum();
    match total {
        0 => println!("nothing"),
        n if n > 50 => println!("large: {}", n),
        n => println!("small: {}", n),
    }
}
```

机器学习是人工智能的一个重要分支，它让计算机从数据中学习规律。神经网络由很多层组成，每一层都把输入变成新的表示。请写一个简单的程序，
计算从一到一百的和。内存的速度决定了模型回答问题的速度，所以我们要尽量减少数据的传输。谢谢你的帮助，今天的天气怎么样？我们明天去学校学习。
私は学生です。毎日図書館で本を読みます。日本語の勉強はとても楽しいです。大きなモデルはたくさんのメモリーを使います。

Die Katze sitzt auf dem Dach und schaut in den Garten. Le chat est sur le toit et regarde dans le jardin. El gato está en
el tejado y mira el jardín. Кошка сидит на крыше и смотрит в сад. Il gatto è sul tetto e guarda nel giardino.

Once upon a time there was a princess who did not want to marry. "I will marry the man who can ask me a question that I
cannot answer," she said. Many princes came with difficult questions about stars, numbers and dragons, and she answered
them all. At last a shepherd came and asked: "What would you like to do tomorrow?" The princess thought about it for a long
time, because nobody had ever asked her this before. She did not marry the shepherd, but they became good friends, and
they travelled around the world together, and everywhere they went they asked people what they would like to do tomorrow.

The keeper's last entry is short. "Wind from the south, one ship, clear. The machine works well. I shall keep the book
all the same, since a light without a record is only a light." Below it, in another hand and with another date, there
is a second line: "Wind from the west, no ships, some fog. I have read all thirty-one volumes. The record goes on."
)corpus";
}

}  // namespace moestro
