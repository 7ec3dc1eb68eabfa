//! The languages of reports: English, and Chinese as it is written in Taiwan.

/// A language.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lang {
    /// English.
    #[default]
    En,
    /// Traditional Chinese.
    ZhTw,
}

impl Lang {
    /// Its name by BCP 47.
    pub fn tag(self) -> &'static str {
        match self {
            Lang::En => "en",
            Lang::ZhTw => "zh-TW",
        }
    }

    /// The language with this tag.
    pub fn of_tag(tag: &str) -> Option<Lang> {
        [Lang::En, Lang::ZhTw].into_iter().find(|lang| lang.tag().eq_ignore_ascii_case(tag))
    }

    /// What an English text of a report is in this language. One that nobody translated stays as it is:
    /// names of engines and models do.
    pub fn say(self, english: &str) -> &str {
        match self {
            Lang::En => english,
            Lang::ZhTw => {
                let found = WORDS.iter().find(|(en, _)| *en == english);
                found.map_or(english, |(_, chinese)| *chinese)
            }
        }
    }
}

/// Every text of reports, in English and in Chinese.
const WORDS: &[(&str, &str)] = &[
    ("Benchmark report", "效能測試報告"),
    ("Decode speed by context", "各脈絡長度的生成速度"),
    ("Decode speed kept as the context grows", "脈絡增長時保留的生成速度"),
    ("Spread of decode speed between runs", "各次測試生成速度的離散程度"),
    ("Decode speed, every run", "生成速度（每次測試）"),
    ("Prefill speed by context", "各脈絡長度的預填速度"),
    ("Time to first token, cold", "首個詞元時間（冷啟動提示）"),
    ("Gaps between arrivals", "詞元到達間隔"),
    ("Throughput of all users", "所有使用者的總吞吐量"),
    ("Speed of one user among many", "多人同時使用時單一使用者的速度"),
    ("Share of the memory bandwidth used by decoding", "生成時使用的記憶體頻寬比例"),
    ("Time to first token by turn of a chat", "對話各回合的首個詞元時間"),
    ("Time to first token by question about the same documents", "共用文件各提問的首個詞元時間"),
    ("Time to first token by step of a tool loop", "工具迴圈各步驟的首個詞元時間"),
    ("Time to first token before and after a restart", "重啟前後的首個詞元時間"),
    ("Slowest twentieth of first tokens by rate of arrival", "各到達率下首個詞元時間 p95"),
    ("Answers that kept the target by rate of arrival", "各到達率下達標的回答數"),
    ("One run in time", "單次測試的時間軸"),
    ("prompt tokens", "提示詞元數"),
    ("users at once", "同時使用者數"),
    ("turn", "回合"),
    ("question", "提問"),
    ("step", "步驟"),
    ("requests per minute", "每分鐘請求數"),
    ("answers per second", "每秒回答數"),
    ("the same prompt", "同一提示"),
    ("first asked", "首次請求"),
    ("after the restart", "重啟之後"),
    ("tok/s", "詞元／秒"),
    ("ms", "毫秒"),
    ("s", "秒"),
    ("MB", "MB"),
    ("% of the shortest context", "相對最短脈絡的百分比"),
    ("coefficient of variation, %", "變異係數（%）"),
    ("% of bandwidth", "頻寬百分比"),
    ("ms between arrivals", "到達間隔（毫秒）"),
    ("% of gaps that are longer", "更長間隔所佔百分比"),
    ("seconds", "秒"),
    ("user", "使用者"),
    ("waiting", "等待"),
    ("answering", "回答"),
    ("Marks are medians; bars are 95 % intervals.", "標記為中位數；誤差線為 95% 信賴區間。"),
    ("Higher is better.", "越高越好。"),
    ("Lower is better.", "越低越好。"),
    (
        "Boxes hold the middle half, whiskers all runs; dots are single runs.",
        "方框為中間一半，鬚線為全部；圓點為單次測試。",
    ),
    ("Both scales are logarithmic.", "兩軸皆為對數刻度。"),
    ("Dashed: published by others, on other machines.", "虛線：他人在其他機器上公布的數據。"),
    ("The scale is logarithmic.", "縱軸為對數刻度。"),
    ("Measured on", "測試環境"),
    ("processor", "處理器"),
    ("memory", "記憶體"),
    ("system", "系統"),
    ("bandwidth, measured", "實測記憶體頻寬"),
    ("8-bit arithmetic, measured", "實測 8 位元運算峰值"),
    ("added by the client to each first token", "測試程式對首個詞元增加的時間"),
    ("plan", "測試計畫"),
    ("sampling, sent with every request", "每次請求都傳送的取樣設定"),
    ("This run was interrupted: some of it is missing.", "本次測試曾被中斷，部分結果缺漏。"),
    ("Summary", "摘要"),
    ("workload", "工作負載"),
    ("at", "條件"),
    ("measure", "量測項目"),
    (
        "Median with its 95 % interval; n is the number of runs.",
        "中位數與其 95% 信賴區間；n 為測試次數。",
    ),
    ("Verdicts", "比較結論"),
    ("compared with", "比較基準"),
    ("ratio", "比值"),
    ("verdict", "結論"),
    ("same", "相同"),
    ("faster", "較快"),
    ("slower", "較慢"),
    ("unclear", "無法判定"),
    ("better", "較佳"),
    ("worse", "較差"),
    (
        "A verdict needs the whole interval to be beyond what the same engine differs from itself by.",
        "只有整個區間都超過同一引擎自身差異時，才下結論。",
    ),
    ("Noise floor", "雜訊底線"),
    (
        "what the same engine, measured as if it were two, differed from itself by",
        "將同一引擎當成兩個引擎測試所得的差異",
    ),
    ("Doubts", "疑點"),
    ("requests", "請求數"),
    ("what was noticed", "發現的問題"),
    ("Failures", "失敗紀錄"),
    ("none", "無"),
    ("How it was started", "啟動方式"),
    ("engine", "引擎"),
    ("model", "模型"),
    ("version", "版本"),
    ("command", "指令"),
    ("Charts", "圖表"),
    ("decode_tps", "生成速度"),
    ("prefill_tps", "預填速度"),
    ("ttft_cold", "首個詞元時間（冷）"),
    ("ttft_warm", "首個詞元時間（熱）"),
    ("ttft_restarted", "首個詞元時間（重啟後）"),
    ("ttft_p95", "首個詞元時間 p95"),
    ("first_answer", "首個回答詞元時間"),
    ("tpot", "每詞元時間"),
    ("gap_p50", "間隔 p50"),
    ("gap_p95", "間隔 p95"),
    ("gap_p99", "間隔 p99"),
    ("gap_max", "最大間隔"),
    ("end_to_end", "總時間"),
    ("aggregate", "總吞吐量"),
    ("per_user", "單一使用者速度"),
    ("goodput", "達標吞吐量"),
    ("accepted", "草稿接受率"),
    ("roofline", "頻寬使用率"),
    ("arithmetic", "運算使用率"),
    ("ready", "啟動到就緒"),
    ("cold_start", "啟動後首次請求"),
    ("peak_private", "專用記憶體峰值"),
    ("peak_resident", "常駐記憶體峰值"),
    ("energy", "能耗"),
    ("context", "脈絡長度"),
    ("users", "同時使用者"),
    ("chat", "多回合對話"),
    ("rag", "共用文件問答"),
    ("tools", "工具迴圈"),
    ("code-edit", "程式碼修改"),
    ("arrivals", "隨機到達"),
    ("long-output", "長輸出"),
    ("cold-start", "冷啟動"),
    ("restart", "重啟後磁碟快取"),
    ("process", "行程"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Measure;

    #[test]
    fn nothing_is_translated_twice_or_to_nothing() {
        for (i, (english, chinese)) in WORDS.iter().enumerate() {
            assert!(!chinese.is_empty());
            assert!(WORDS[..i].iter().all(|(other, _)| other != english), "{english}");
        }
    }

    #[test]
    fn every_measure_has_a_name_in_every_language() {
        for measure in Measure::ALL {
            assert!(WORDS.iter().any(|(english, _)| *english == measure.name()), "{measure:?}");
        }
        assert_eq!(Lang::of_tag("zh-tw"), Some(Lang::ZhTw));
        assert_eq!(Lang::ZhTw.say("nobody translates this"), "nobody translates this");
    }
}
